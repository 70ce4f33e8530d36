// dgram_echo.js server: echoes datagrams, prints its port. dgram_echo.js client PORT COUNT: that many there and back, eight at
// once, of many sizes, in order; prints the octets moved.
'use strict';
const dgram = require('dgram');
const socket = dgram.createSocket('udp4');
socket.on('error', (e) => { console.error(e); process.exit(1); });
if (process.argv[2] === 'server') {
  socket.on('message', (m, from) => socket.send(m, from.port, from.address));
  socket.bind(0, '127.0.0.1', () => console.log(`port ${socket.address().port}`));
} else {
  const [port, count] = process.argv.slice(3).map(Number);
  const sizes = [1, 14, 64, 1400, 9000];
  const make = (n) => Buffer.alloc(sizes[n % sizes.length], n % 251);
  let sent = 0, back = 0, payload = 0;
  const send = () => { if (sent < count) socket.send(make(sent++)); };
  socket.on('message', (m) => {
    if (!m.equals(make(back))) { console.error(`another datagram came back for ${back}`); process.exit(1); }
    back += 1;
    payload += 2 * m.length;
    if (back === count) { console.log(`payload ${payload}`); socket.close(); } else send();
  });
  socket.connect(port, '127.0.0.1', () => { for (let i = 0; i < 8; i += 1) send(); });
}
