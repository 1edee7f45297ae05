// The answers of the inspector's API, as the page reads them. A field that may be absent is optional.

/** One request and its response, in short. */
export interface Exchange {
  /** Counts up from 1 as long as the program runs. */
  id: number;
  /** The time when the request came, as a date-time. */
  began: string;
  method: string;
  host?: string;
  /** The path with its query. */
  path: string;
  protocol: 'http' | 'websocket' | 'sse' | 'grpc';
  /** Whether it runs, or how it ended. */
  state: 'open' | 'complete' | 'failed' | 'denied';
  status?: number | null;
  /** Absent while it runs. */
  duration_ms?: number | null;
  request_bytes: number;
  response_bytes: number;
  socket_name?: string | null;
  /** The person or service token that the edge let in. */
  identity?: string | null;
  /** The rule that decided about access. */
  rule?: string | null;
  edge?: string | null;
  client?: string | null;
  /** One sentence about what went wrong. */
  error?: string | null;
  /** The exchange that was sent again. */
  replay_of?: number | null;
  frames?: number;
}

export interface Header {
  name: string;
  value: string;
}

/** What was kept of one direction. */
export interface Message {
  version?: string | null;
  headers: Header[];
  trailers?: Header[];
  /** The length of the body that passed. */
  bytes: number;
  /** How much of the body was kept. */
  kept: number;
  is_truncated: boolean;
  content_type?: string | null;
  content_encoding?: string | null;
  /** How many bytes the capture missed, because it had no room. */
  missed?: number;
  /** Names of what was taken out before it was kept. */
  redacted?: string[];
}

/** All of an exchange but its bodies. */
export interface Details extends Exchange {
  request: Message;
  response?: Message | null;
  /** Moments since the request came, in milliseconds. */
  timing?: { name: string; at_ms: number }[];
  /** Further facts: names and values. */
  facts?: { name: string; value: string }[];
}

export interface Part {
  name?: string | null;
  file_name?: string | null;
  content_type?: string | null;
  bytes: number;
  text?: string | null;
}

/** A body, decoded for reading. */
export interface View {
  kind: 'empty' | 'json' | 'form' | 'multipart' | 'image' | 'text' | 'binary' | 'grpc';
  content_type?: string | null;
  /** The length after decoding. */
  bytes: number;
  is_truncated: boolean;
  text?: string | null;
  parts?: Part[];
  /** One sentence about why it could not be decoded. */
  problem?: string | null;
  problem_line?: number | null;
  problem_column?: number | null;
}

/** One message of a WebSocket, of server-sent events or of gRPC. */
export interface Frame {
  number: number;
  at: string;
  from: 'client' | 'service';
  kind: string;
  bytes: number;
  is_truncated?: boolean;
  text?: string | null;
  base64?: string | null;
  /** One sentence about what could not be read. */
  problem?: string | null;
}

export interface State {
  tunnels: { url: string; socket_name?: string | null; target?: string | null }[];
  edges: { name: string; is_up: boolean }[];
  exchanges: number;
  bytes: number;
  max_exchanges: number;
  max_bytes: number;
  /** How many were dropped to keep the bounds. */
  dropped?: number;
  version?: string;
}

export interface DiffLine {
  op: 'same' | 'removed' | 'added';
  text: string;
}

export interface Diff {
  sections: { title: string; lines: DiffLine[] }[];
}

export interface Page<T> {
  items: T[];
  next?: number | null;
}

/** What is sent to replay; what is absent is taken from the exchange. */
export interface Replay {
  method?: string;
  path?: string;
  headers?: Header[];
  body_base64?: string;
  confirm?: boolean;
}

/** A refusal, RFC 9457. */
export interface Problem {
  title?: string;
  detail?: string;
  needs_confirmation?: boolean;
}
