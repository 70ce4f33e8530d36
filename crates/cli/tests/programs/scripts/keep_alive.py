"""Asks for one file again and again over a connection that is kept: PORT FILE SECONDS.

A request to which an idle connection gives no answer at all is sent once more on a new one (RFC 9110, 9.2.2).
"""

import http.client
import sys
import time

port, name, seconds = int(sys.argv[1]), sys.argv[2], float(sys.argv[3])
wanted = open(name, "rb").read()
path = "/" + name.rsplit("/", 1)[1]
end = time.monotonic() + seconds
connection = None
answered = again = failed = 0
while time.monotonic() < end:
    for attempt in range(2):
        fresh = connection is None
        if fresh:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            body = response.read()
        except (ConnectionError, http.client.HTTPException, TimeoutError) as error:
            connection.close()
            connection = None
            if attempt or fresh or isinstance(error, TimeoutError):
                failed += 1
                print(repr(error), file=sys.stderr)
                break
            again += 1
            continue
        if response.will_close:
            connection.close()
            connection = None
        if response.status == 200 and body == wanted:
            answered += 1
        else:
            failed += 1
            print(response.status, len(body), file=sys.stderr)
        break
print(f"{answered} answered, {again} sent again, {failed} failed")
