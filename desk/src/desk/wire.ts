// The answers of control, by the names that the desk uses. The types are made from the description of the API.
import type { components } from '../api/control';

type Schemas = components['schemas'];

export type Account = Schemas['Account'];
export type AccountSession = Schemas['AccountSession'];
export type AnycastEdgePrefix = Schemas['AnycastEdgePrefix'];
export type AnycastStatus = Schemas['AnycastStatus'];
export type AuditEvent = Schemas['AuditEvent'];
export type Balancer = Schemas['Balancer'];
export type CatchmentSuggestion = Schemas['CatchmentSuggestion'];
export type Certificate = Schemas['Certificate'];
export type CreatedInvitation = Schemas['CreatedInvitation'];
export type CreatedServiceToken = Schemas['CreatedServiceToken'];
export type CreatedToken = Schemas['CreatedToken'];
export type CreatedTunnel = Schemas['CreatedTunnel'];
export type DirectOrigin = Schemas['DirectOrigin'];
export type Domain = Schemas['Domain'];
export type Edge = Schemas['Edge'];
export type EndedFlow = Schemas['EndedFlow'];
export type EndedFlowPage = Schemas['EndedFlowPage'];
export type Flow = Schemas['Flow'];
export type FlowPage = Schemas['FlowPage'];
export type Info = Schemas['Info'];
export type Invitation = Schemas['Invitation'];
export type InvitedPerson = Schemas['InvitedPerson'];
export type Landing = Schemas['Landing'];
export type LandingPage = Schemas['LandingPage'];
export type LocalPerson = Schemas['LocalPerson'];
export type MeasurementPage = Schemas['MeasurementPage'];
export type Member = Schemas['Member'];
export type Organisation = Schemas['Organisation'];
export type PlannedEdge = Schemas['PlannedEdge'];
export type PlannedOrigin = Schemas['PlannedOrigin'];
export type Policy = Schemas['Policy'];
export type PolicyTest = Schemas['PolicyTest'];
export type Problem = Schemas['Problem'];
export type Provider = Schemas['Provider'];
export type ProviderFound = Schemas['ProviderFound'];
export type ReceivedInvitation = Schemas['ReceivedInvitation'];
export type ServiceToken = Schemas['ServiceToken'];
export type SilentEdge = Schemas['SilentEdge'];
export type Socket = Schemas['Socket'];
export type SocketIdentity = Schemas['SocketIdentity'];
export type SocketPlan = Schemas['SocketPlan'];
export type SocketStats = Schemas['SocketStats'];
export type SshAuthority = Schemas['SshAuthority'];
export type SshKey = Schemas['SshKey'];
export type Token = Schemas['Token'];
export type Tunnel = Schemas['Tunnel'];
export type UpdateSocket = Schemas['UpdateSocket'];
export type Verification = Schemas['AuditVerification'];
export type Way = Schemas['Way'];
export type WayPage = Schemas['WayPage'];

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
