// The answers of control, by the names that the desk uses. The types are made from the description of the API.
import type { components } from '../api/control';

type Schemas = components['schemas'];

export type Account = Schemas['Account'];
export type AuditEvent = Schemas['AuditEvent'];
export type Certificate = Schemas['Certificate'];
export type CreatedInvitation = Schemas['CreatedInvitation'];
export type CreatedToken = Schemas['CreatedToken'];
export type CreatedTunnel = Schemas['CreatedTunnel'];
export type DirectOrigin = Schemas['DirectOrigin'];
export type Domain = Schemas['Domain'];
export type Edge = Schemas['Edge'];
export type Flow = Schemas['Flow'];
export type FlowPage = Schemas['FlowPage'];
export type Info = Schemas['Info'];
export type Invitation = Schemas['Invitation'];
export type Member = Schemas['Member'];
export type Organisation = Schemas['Organisation'];
export type Policy = Schemas['Policy'];
export type PolicyTest = Schemas['PolicyTest'];
export type Problem = Schemas['Problem'];
export type Socket = Schemas['Socket'];
export type SocketStats = Schemas['SocketStats'];
export type Token = Schemas['Token'];
export type Tunnel = Schemas['Tunnel'];
export type Verification = Schemas['AuditVerification'];

/** A page of a list. */
export interface Page<T> {
  items: T[];
  next?: string | null;
}

/** The session of the browser: `GET /session`. */
export interface Session {
  account: { id: string; name: string; email: string; owns_installation: boolean; ends_at: string } | null;
  is_new: boolean;
  needs_setup_token: boolean;
}
