// A real service behind a tunnel, and a client with a WebSocket in front of it.
import { createHash, randomBytes } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { createServer } from 'node:http';
import { connect as connectTls } from 'node:tls';
import { within } from './browser.mjs';
import { SCRIPT } from './seed.mjs';

/** A service that keeps what it got, answers, and echoes messages of WebSockets. */
export async function service(t) {
  const got = [];
  const server = createServer(async (request, response) => {
    const at = Date.now();
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    got.push({ at, method: request.method, path: request.url, headers: request.headers, body: Buffer.concat(chunks) });
    if (request.url.startsWith('/svg')) {
      response.setHeader('content-type', 'image/svg+xml');
      response.setHeader('x-name', SCRIPT);
      return response.end(`<svg xmlns="http://www.w3.org/2000/svg" onload="window.hit=1">${SCRIPT}</svg>`);
    }
    response.setHeader('content-type', 'application/json');
    return response.end(JSON.stringify({ got: request.url, number: got.length }));
  });
  server.on('upgrade', (request, socket) => {
    const accept = createHash('sha1').update(`${request.headers['sec-websocket-key']}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest('base64');
    socket.write(`HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-accept: ${accept}\r\n\r\n`);
    socket.on('error', () => socket.destroy());
    socket.on('data', (frame) => {
      const mask = frame.subarray(2, 6);
      const text = Buffer.from(frame.subarray(6, 6 + (frame[1] & 127)).map((byte, at) => byte ^ mask[at % 4]));
      socket.write(Buffer.concat([Buffer.from([0x81, text.length]), text]));
    });
    t.after(() => socket.destroy());
  });
  await new Promise((go) => server.listen(0, '127.0.0.1', go));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return { got, port: server.address().port };
}

/** Sends one message by a WebSocket through the edge. `send` sends one more; `closed` is the end of the connection. */
export async function webSocket(t, url, ca, text) {
  const { hostname, port } = new URL(url);
  const stream = connectTls({ host: '127.0.0.1', port: Number(port), servername: hostname, ca: await readFile(ca), ALPNProtocols: ['http/1.1'] });
  t.after(() => stream.destroy());
  stream.on('error', () => stream.destroy());
  const closed = new Promise((go) => stream.once('close', go));
  await within(new Promise((go) => stream.once('secureConnect', go)), 'no TLS connection came about');
  const key = randomBytes(16).toString('base64');
  stream.write(`GET /socket HTTP/1.1\r\nhost: ${hostname}:${port}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: ${key}\r\n\r\n`);
  await within(new Promise((go) => stream.once('data', go)), 'the WebSocket got no answer');
  const send = (words) => {
    const [body, mask] = [Buffer.from(words), Buffer.from([1, 2, 3, 4])];
    stream.write(Buffer.concat([Buffer.from([0x81, 0x80 | body.length]), mask, body.map((byte, at) => byte ^ mask[at % 4])]));
  };
  send(text);
  return { send, closed };
}
