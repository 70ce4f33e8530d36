"""A WSGI application that answers with the files of $WSGI_FILES, and with the process that did."""

import os

FILES = {}
for _name in os.listdir(os.environ["WSGI_FILES"]):
    with open(os.path.join(os.environ["WSGI_FILES"], _name), "rb") as _file:
        FILES["/" + _name] = _file.read()


def application(environ, start_response):
    body = FILES[environ["PATH_INFO"]]
    fields = [("Content-Length", str(len(body))), ("X-Worker", str(os.getpid()))]
    start_response("200 OK", fields)
    return [body]
