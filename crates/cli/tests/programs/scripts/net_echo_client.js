// Sends BYTES bytes in blocks of changing size and compares the hash of what comes back.
'use strict';
const net = require('net');
const crypto = require('crypto');
const port = Number(process.argv[2]);
const total = Number(process.argv[3]);

// A block that differs from the ones before and after it: a lost, doubled or moved block changes the hash.
const noise = crypto.createHash('sha256').update('bypath').digest();
function block(number, size) {
  const b = Buffer.alloc(size, noise);
  if (size >= 4) b.writeUInt32LE(number, 0);
  return b;
}

const sentHash = crypto.createHash('sha256');
const gotHash = crypto.createHash('sha256');
let sent = 0, got = 0, number = 0;
const socket = net.connect({ port, host: '127.0.0.1', allowHalfOpen: true });
socket.on('error', (e) => { console.error(e); process.exit(1); });

function fill() {
  while (sent < total) {
    number += 1;
    const b = block(number, Math.min(total - sent, 1 + (number * 7919) % 70000));
    sentHash.update(b);
    sent += b.length;
    if (!socket.write(b)) return void socket.once('drain', fill);
  }
  socket.end();
}
socket.on('connect', fill);
socket.on('data', (b) => { gotHash.update(b); got += b.length; });
socket.on('end', () => {
  const same = sentHash.digest('hex') === gotHash.digest('hex');
  if (got !== total || !same) {
    console.error(`sent ${sent} bytes, got ${got}, hashes ${same ? 'equal' : 'differ'}`);
    process.exit(1);
  }
  console.log(`echoed ${got}`);
});
