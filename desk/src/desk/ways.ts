// The address of the API, and its requests as lines for a shell.
import { word } from '../parts/shell';

/** The API that clients of this installation call; the desk is its neighbour. */
export const apiUrl = (): string => `${location.protocol}//${location.host.replace(/^desk\./, 'api.')}`;

/** A request with curl, which takes an API token from the environment. */
export const curl = (method: string, path: string, body?: unknown): string =>
  [
    'curl',
    ...(method === 'GET' ? [] : ['-X', method]),
    '-H "Authorization: Bearer $SALLYPORT_TOKEN"',
    ...(body === undefined ? [] : ['--json', word(JSON.stringify(body))]),
    word(apiUrl() + path),
  ].join(' ');
