// Echoes every connection until it ends; prints its port.
'use strict';
const net = require('net');
const server = net.createServer({ allowHalfOpen: true }, (socket) => {
  socket.on('error', (e) => { console.error(e); process.exit(1); });
  socket.pipe(socket);
});
server.listen(0, '127.0.0.1', () => console.log(`port ${server.address().port}`));
