// Serves the built page with seeded requests, to look at it: node tests/serve.mjs [PORT]
import { Mock } from './mock.mjs';
import { services } from './seed.mjs';

const mock = await new Mock().start(Number(process.argv[2] ?? 4040));
services(mock);
console.log(mock.address);
let tick = 0;
setInterval(() => {
  tick += 1;
  mock.add({ path: `/poll?tick=${tick}`, duration_ms: 3 + (tick % 9) });
}, 2000);
