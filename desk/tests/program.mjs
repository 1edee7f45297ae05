// The real program in tests. SALLYPORT names it; else it is target/debug/sallyport.
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { LIMIT_MS } from './browser.mjs';

export const PROGRAM = process.env.SALLYPORT ?? join(dirname(fileURLToPath(import.meta.url)), '../../target/debug/sallyport');
const isThere = existsSync(PROGRAM);
if (!isThere && process.env.CI) throw new Error(`${PROGRAM} must be there in CI`);
/** Why tests with the program are left out, or false. */
export const MISSING = isThere ? false : `${PROGRAM} is not built`;

/** What ends the programs of each folder. */
const stops = new Map();

/** A folder of its own for the program, and its environment. The folder goes after the programs that write into it. */
export async function place(t) {
  const home = await mkdtemp(join(tmpdir(), 'sallyport-desk-'));
  stops.set(home, []);
  t.after(async () => {
    await Promise.all(stops.get(home).map((stop) => stop()));
    await rm(home, { recursive: true, force: true });
  });
  const kept = Object.entries(process.env).filter(([name]) => !name.startsWith('SALLYPORT_'));
  const env = { ...Object.fromEntries(kept), HOME: home, SALLYPORT_STATE_DIR: join(home, 'state'), XDG_CONFIG_HOME: join(home, 'config'), SALLYPORT_PASSWORD: 'correct horse battery staple' };
  return { home, env };
}

/** A program whose lines can be waited for; it is ended with the test. */
export function start(t, env, args) {
  const child = spawn(PROGRAM, args, { env, stdio: ['ignore', 'pipe', 'pipe'] });
  let output = '';
  const waiting = new Set();
  const look = (chunk) => {
    output += chunk;
    for (const one of waiting) one();
  };
  child.stdout.on('data', look);
  child.stderr.on('data', look);
  const ended = new Promise((go) => child.on('exit', go));
  const stop = async () => {
    if (child.exitCode === null) child.kill('SIGTERM');
    const late = setTimeout(() => child.kill('SIGKILL'), LIMIT_MS);
    await ended;
    clearTimeout(late);
  };
  const ofFolder = stops.get(env.HOME);
  if (ofFolder) ofFolder.push(stop);
  else t.after(stop);
  const line = (words) =>
    new Promise((go, fail) => {
      const late = setTimeout(() => fail(new Error(`no "${words}" in: ${output}`)), LIMIT_MS);
      const one = () => {
        const found = output.split('\n').slice(0, -1).find((text) => text.includes(words));
        if (found === undefined) return;
        clearTimeout(late);
        waiting.delete(one);
        go(found);
      };
      waiting.add(one);
      one();
    });
  return { line, stop };
}
