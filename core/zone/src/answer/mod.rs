//! The answer to a query: what the zones and the view say, as bytes.
//!
//! May use: all other rooms of this crate.

mod chaos;
mod denial;
mod outcome;
mod resolve;
mod response;
mod settings;

use std::time::Instant;

pub use outcome::{AnswerKind, DropReason, Outcome, Rcode, Verdict};
use response::Response;
pub use settings::{MAX_IDENTITY_BYTES, Now, Peer, Serving, Settings, SettingsError, State, StateConfig, Transport};

use crate::{
    limit::{AnswerClass, CookieVerdict, RateVerdict},
    query::{CLASS_ANY, CLASS_CH, CLASS_IN, Query, QueryError},
    record::RecordType,
    transfer::Transfer,
    tsig::{TsigCheck, TsigSession},
};

/// The longest answer over UDP, in bytes: it passes every path without fragments (DNS flag day 2020).
pub const MAX_UDP_BYTES: usize = 1_232;
/// The longest answer over UDP to a client without EDNS, in bytes (RFC 1035 section 4.2.1).
const MAX_PLAIN_UDP_BYTES: usize = 512;
/// The longest message over TCP, in bytes.
pub const MAX_TCP_BYTES: usize = 65_535;

/// Answers a message. `out` gets the answer, and is empty if there is none.
pub fn answer(
    message: &[u8],
    peer: &Peer,
    serving: &Serving<'_>,
    state: &mut State,
    now: Now,
    out: &mut Vec<u8>,
) -> Outcome {
    out.clear();
    let query = match Query::read(message) {
        Ok(query) => query,
        Err(error) => return answer_error(message, &error, peer, state, now.monotonic, out),
    };
    let mut tsig = None;
    if let Some(at) = query.tsig_at {
        match serving.settings.tsig_keys.check(message, at, now.unix_seconds) {
            TsigCheck::Valid(session) => tsig = Some(session),
            TsigCheck::Malformed => return short(message, &query, Rcode::FORM_ERR, peer, state, now.monotonic, out),
            TsigCheck::Failed(failure) => {
                let outcome = short(message, &query, Rcode::NOT_AUTH, peer, state, now.monotonic, out);
                if !out.is_empty() {
                    failure.append(out);
                }
                return outcome;
            }
        }
    }
    let is_known = is_known(&query, peer, serving, now) || tsig.is_some();
    let tsig_len = tsig.as_ref().map_or(0, TsigSession::record_len);
    let mut response = Response::new(message, &query, max_bytes(&query, peer).saturating_sub(tsig_len), out);
    response.set_options(&query, peer, serving.settings, now, false, &mut state.options);
    let kind = dispatch(&query, peer, serving, state, now, tsig, is_known, &mut response);
    match kind {
        Dispatched::Done(kind, tsig) => {
            let steered = response.steered();
            let (rcode, is_truncated) = response.finish(&state.options);
            if let Some(mut tsig) = tsig {
                tsig.sign(out, now.unix_seconds);
            }
            Outcome { rcode, kind, is_truncated, verdict: Verdict::Send, steered }
        }
        Dispatched::Drop(kind, reason) => {
            let rcode = response.rcode();
            out.clear();
            Outcome { rcode, kind, is_truncated: false, verdict: Verdict::Drop(reason), steered: None }
        }
        Dispatched::Transfer(transfer) => {
            let rcode = response.rcode();
            out.clear();
            let verdict = Verdict::Transfer(transfer);
            Outcome { rcode, kind: AnswerKind::Transfer, is_truncated: false, verdict, steered: None }
        }
    }
}

enum Dispatched {
    Done(AnswerKind, Option<TsigSession>),
    Drop(AnswerKind, DropReason),
    Transfer(Box<Transfer>),
}

#[expect(clippy::too_many_arguments, reason = "the steps of an answer share them")]
fn dispatch(
    query: &Query<'_>,
    peer: &Peer,
    serving: &Serving<'_>,
    state: &mut State,
    now: Now,
    tsig: Option<TsigSession>,
    is_known: bool,
    response: &mut Response<'_>,
) -> Dispatched {
    let question = &query.question;
    let (kind, found) = if query.edns.is_some_and(|edns| edns.version != 0) {
        //= RFC 6891 section 6.1.3
        //# If a responder does not implement the VERSION level of the request, then it MUST respond with
        //# RCODE=BADVERS.
        response.set_rcode(Rcode::BAD_VERS);
        (AnswerKind::BadVersion, None)
    } else if question.is_none() {
        // The cookie is in the OPT record.
        (AnswerKind::NoData, None)
    } else if question.class == CLASS_CH {
        (chaos::answer(question, serving.settings, response), None)
    } else if !matches!(question.class, CLASS_IN | CLASS_ANY) {
        response.set_rcode(Rcode::REFUSED);
        (AnswerKind::Refused, None)
    } else if matches!(question.rtype, RecordType::AXFR | RecordType::IXFR) {
        return transfer(query, peer, serving, now, tsig, response);
    } else if let Some(rcode) = refused_type(question.rtype) {
        response.set_rcode(rcode);
        (AnswerKind::Malformed, None)
    } else if let Some(zone) = serving.zones.find(&question.name, question.rtype) {
        let found = resolve::first(zone, serving.view, question);
        (found.kind, Some((zone, found)))
    } else {
        response.set_rcode(Rcode::REFUSED);
        (AnswerKind::Refused, None)
    };
    if !is_known {
        match state.limiter.record(peer.address, class(kind), now.monotonic) {
            RateVerdict::Send => {}
            RateVerdict::Truncate => {
                response.truncate();
                // Shorter than the query, so that a forged sender gets no more than the forger sends.
                response.set_options(query, peer, serving.settings, now, true, &mut state.options);
                return Dispatched::Done(AnswerKind::Limited, tsig);
            }
            RateVerdict::Drop => return Dispatched::Drop(AnswerKind::Limited, DropReason::RateLimited),
        }
    }
    match found {
        Some((zone, found)) => {
            let kind = resolve::resolve(query, peer, serving, zone, found, state, now, response);
            Dispatched::Done(kind, tsig)
        }
        None => Dispatched::Done(kind, tsig),
    }
}

/// The code for types that no query may have.
fn refused_type(rtype: RecordType) -> Option<Rcode> {
    match rtype {
        //= RFC 9824 section 3.5
        //# If an explicit query for the NXNAME RR type is received, the DNS server MUST return a Format Error
        RecordType::NXNAME | RecordType::OPT | RecordType::TSIG => Some(Rcode::FORM_ERR),
        // There is no type 0, and MAILB and MAILA are obsolete.
        RecordType(0 | 253 | 254) => Some(Rcode::NOT_IMP),
        _ => None,
    }
}

/// Transfers go over TCP, to who signs the query by a key of the zone.
fn transfer(
    query: &Query<'_>,
    peer: &Peer,
    serving: &Serving<'_>,
    now: Now,
    tsig: Option<TsigSession>,
    response: &mut Response<'_>,
) -> Dispatched {
    let question = &query.question;
    if peer.transport == Transport::Udp && question.rtype == RecordType::AXFR {
        response.set_rcode(Rcode::FORM_ERR);
        return Dispatched::Done(AnswerKind::Malformed, tsig);
    }
    let zone = serving.zones.get_wire(question.name.as_wire());
    let allowed = zone.zip(tsig.as_ref()).filter(|(zone, tsig)| zone.transfer_keys().contains(tsig.key_name()));
    let Some((zone, _)) = allowed.filter(|(zone, _)| zone.is_static()) else {
        response.set_rcode(if zone.is_some() { Rcode::REFUSED } else { Rcode::NOT_AUTH });
        return Dispatched::Done(AnswerKind::Refused, tsig);
    };
    if peer.transport == Transport::Udp {
        //= RFC 1995 section 2
        //# If the UDP reply does not fit, the query is responded to with a single SOA record of the server's
        //# current version to inform the client that a TCP query should be initiated.
        response.set_authoritative();
        response.write_soa(zone, 12);
        return Dispatched::Done(AnswerKind::Records, tsig);
    }
    let known_serial = query.known_serial.filter(|_| question.rtype == RecordType::IXFR);
    let Some(tsig) = tsig else {
        response.set_rcode(Rcode::REFUSED);
        return Dispatched::Done(AnswerKind::Refused, None);
    };
    let transfer = Transfer::new(zone.clone(), query.header, question.rtype, known_serial, tsig, now.unix_seconds);
    Dispatched::Transfer(Box::new(transfer))
}

/// Whether the client surely is at its address: TCP, or a valid cookie.
fn is_known(query: &Query<'_>, peer: &Peer, serving: &Serving<'_>, now: Now) -> bool {
    if peer.transport == Transport::Tcp {
        return true;
    }
    let (cookie, secrets) = (query.edns.and_then(|edns| edns.cookie), &serving.settings.cookies);
    let verdict = cookie
        .zip(secrets.as_ref())
        .map(|(cookie, secrets)| secrets.check(cookie.client, cookie.server, peer.address, now.unix_seconds));
    verdict == Some(CookieVerdict::Valid)
}

fn max_bytes(query: &Query<'_>, peer: &Peer) -> usize {
    match (peer.transport, query.edns) {
        (Transport::Tcp, _) => MAX_TCP_BYTES,
        (Transport::Udp, None) => MAX_PLAIN_UDP_BYTES,
        (Transport::Udp, Some(edns)) => usize::from(edns.udp_bytes).clamp(MAX_PLAIN_UDP_BYTES, MAX_UDP_BYTES),
    }
}

fn class(kind: AnswerKind) -> AnswerClass {
    match kind {
        AnswerKind::Records => AnswerClass::Records,
        AnswerKind::NoData => AnswerClass::NoData,
        AnswerKind::NoName => AnswerClass::NoName,
        AnswerKind::Referral => AnswerClass::Referral,
        _ => AnswerClass::Error,
    }
}

/// An answer with a code alone.
fn short(
    message: &[u8],
    query: &Query<'_>,
    rcode: Rcode,
    peer: &Peer,
    state: &mut State,
    now: Instant,
    out: &mut Vec<u8>,
) -> Outcome {
    let kind = if rcode == Rcode::FORM_ERR { AnswerKind::Malformed } else { AnswerKind::Refused };
    if let Some(outcome) = limited(rcode, kind, peer, state, now) {
        return outcome;
    }
    let mut response = Response::new(message, query, MAX_PLAIN_UDP_BYTES, out);
    response.set_rcode(rcode);
    response.finish(&[]);
    Outcome { rcode, kind, is_truncated: false, verdict: Verdict::Send, steered: None }
}

fn answer_error(
    message: &[u8],
    error: &QueryError,
    peer: &Peer,
    state: &mut State,
    now: Instant,
    out: &mut Vec<u8>,
) -> Outcome {
    let (header, question_len, rcode, kind) = match *error {
        QueryError::Drop(reason) => {
            let verdict = Verdict::Drop(DropReason::from(reason));
            return Outcome {
                rcode: Rcode::FORM_ERR,
                kind: AnswerKind::Malformed,
                is_truncated: false,
                verdict,
                steered: None,
            };
        }
        QueryError::Malformed(header, len) => (header, len, Rcode::FORM_ERR, AnswerKind::Malformed),
        QueryError::NotImplemented(header, _) => (header, None, Rcode::NOT_IMP, AnswerKind::NotImplemented),
    };
    if let Some(outcome) = limited(rcode, kind, peer, state, now) {
        return outcome;
    }
    let has_edns = matches!(error, QueryError::NotImplemented(_, true));
    response::write_error(message, header, (question_len, has_edns), rcode, out);
    Outcome { rcode, kind, is_truncated: false, verdict: Verdict::Send, steered: None }
}

/// Errors are as short as queries: past the rate they are dropped.
fn limited(rcode: Rcode, kind: AnswerKind, peer: &Peer, state: &mut State, now: Instant) -> Option<Outcome> {
    let is_sent = peer.transport == Transport::Tcp
        || state.limiter.record(peer.address, AnswerClass::Error, now) == RateVerdict::Send;
    let verdict = Verdict::Drop(DropReason::RateLimited);
    (!is_sent).then_some(Outcome { rcode, kind, is_truncated: false, verdict, steered: None })
}
