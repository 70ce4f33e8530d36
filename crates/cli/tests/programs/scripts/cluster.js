// cluster.js rr|none WORKERS DIR: an HTTP server of the files in DIR by Node's cluster module. `rr`: the primary accepts and
// passes each connection to a worker; `none`: the workers accept from the listener that they share. Prints its port; X-Worker
// says who answered.
'use strict';
const cluster = require('cluster');
const fs = require('fs');
const http = require('http');
const path = require('path');
const [, , policy, workers, dir] = process.argv;
cluster.schedulingPolicy = policy === 'rr' ? cluster.SCHED_RR : cluster.SCHED_NONE;

if (cluster.isPrimary) {
  let listening = 0;
  cluster.on('listening', (worker, address) => {
    listening += 1;
    if (listening === Number(workers)) console.log(`port ${address.port}`);
  });
  for (let n = 0; n < Number(workers); n++) cluster.fork();
  process.on('SIGTERM', () => cluster.disconnect(() => process.exit(0)));
} else {
  const server = http.createServer((request, response) => {
    const body = fs.readFileSync(path.join(dir, path.basename(request.url)));
    response.setHeader('X-Worker', process.pid);
    response.end(body);
  });
  server.keepAliveTimeout = 60000;
  server.listen(0, '127.0.0.1');
}
