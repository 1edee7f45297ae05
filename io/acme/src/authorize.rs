//! The authorizations of an order: its challenges are answered, and what became of them.

use instant_acme::{
    AuthorizationState, AuthorizationStatus, ChallengeStatus, ChallengeType, Identifier, Order, Problem,
};
use sallyport_acme_schedule::ChallengeKind;

use crate::{
    AcmeError, CertificateRequest, Challenge, challenge::is_token, error::harmless, order::MAX_NAMES,
    presented::Presented, problem,
};

/// Answers the challenges of every authorization that is pending, and tells the CA.
pub(crate) async fn authorize(
    order: &mut Order,
    request: &CertificateRequest<'_>,
    presented: &mut Presented,
) -> Result<(), AcmeError> {
    if order.state().authorizations.len() > MAX_NAMES {
        return Err(AcmeError::malformed(format!("the order has more than {MAX_NAMES} authorizations")));
    }
    let mut waiting = Vec::new();
    let mut authorizations = order.authorizations();
    let mut index = 0;
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        let (name, is_wildcard) = name_of(&authorization, request.names)?;
        match authorization.status {
            AuthorizationStatus::Valid => {}
            AuthorizationStatus::Pending => {
                let kind = choose(&authorization, request.challenge_kinds, &name, is_wildcard)?;
                let offered = authorization.challenge(type_of(kind));
                let offered = offered.ok_or_else(|| AcmeError::malformed("a challenge vanished"))?;
                if !is_token(&offered.token) {
                    return Err(AcmeError::malformed("the token of a challenge is not base64url"));
                }
                let (token, key_authorization) = (offered.token.clone(), offered.key_authorization());
                if offered.status == ChallengeStatus::Pending {
                    waiting.push((index, kind));
                }
                let key_authorization = key_authorization.as_str().to_owned();
                presented.present(Challenge { name, is_wildcard, kind, token, key_authorization }).await?;
            }
            _ => return Err(error_of(&authorization, &name)),
        }
        index += 1;
    }
    for (index, kind) in waiting {
        set_ready(order, index, kind).await?;
    }
    Ok(())
}

/// Tells the CA that the answer is visible.
async fn set_ready(order: &mut Order, index: usize, kind: ChallengeKind) -> Result<(), AcmeError> {
    let error = match tell(order, index, kind).await {
        // The look at the order shows what became of it.
        Err(error @ AcmeError::Rejected { .. }) => error,
        other => return other,
    };
    // The CA refuses a second request for a challenge, whose first answer may have been lost.
    let mut authorizations = order.authorizations();
    let mut at = 0;
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if at == index {
            let state = authorization.refresh().await?;
            let challenge = state.challenges.iter().find(|challenge| challenge.r#type == type_of(kind));
            let is_waiting = challenge.is_none_or(|challenge| challenge.status == ChallengeStatus::Pending);
            return if state.status == AuthorizationStatus::Pending && is_waiting { Err(error) } else { Ok(()) };
        }
        at += 1;
    }
    Err(error)
}

async fn tell(order: &mut Order, index: usize, kind: ChallengeKind) -> Result<(), AcmeError> {
    let mut authorizations = order.authorizations();
    let mut at = 0;
    while let Some(authorization) = authorizations.next().await {
        let mut authorization = authorization?;
        if at == index {
            let challenge = authorization.challenge(type_of(kind));
            let mut challenge = challenge.ok_or_else(|| AcmeError::malformed("a challenge vanished"))?;
            return Ok(challenge.set_ready().await?);
        }
        at += 1;
    }
    Err(AcmeError::malformed("an authorization vanished"))
}

/// The reason why the order is invalid.
pub(crate) async fn refusal(order: &mut Order) -> AcmeError {
    let of_order = order.state().error.clone();
    let mut authorizations = order.authorizations();
    for _ in 0..MAX_NAMES {
        let Some(Ok(mut authorization)) = authorizations.next().await else { break };
        let Ok(state) = authorization.refresh().await else { break };
        if !matches!(state.status, AuthorizationStatus::Valid | AuthorizationStatus::Pending) {
            let name = harmless(&state.identifier().to_string());
            return error_of(state, &name);
        }
    }
    match of_order {
        Some(problem) => problem::of_problem(&problem, problem.status.unwrap_or(403), None),
        None => AcmeError::malformed("the order is invalid, without a reason"),
    }
}

/// The reason why an authorization is not valid.
fn error_of(authorization: &AuthorizationState, name: &str) -> AcmeError {
    let failed = authorization.challenges.iter().find_map(|challenge| Some((challenge, challenge.error.as_ref()?)));
    let Some((challenge, problem)) = failed else {
        let detail = format!("the authorization is {:?}", authorization.status).to_lowercase();
        return AcmeError::Authorization { name: name.to_owned(), challenge: None, detail };
    };
    let detail = detail_of(problem);
    if problem::short_type(problem.r#type.as_deref()) == "caa" {
        return AcmeError::Caa { name: name.to_owned(), detail };
    }
    AcmeError::Authorization { name: name.to_owned(), challenge: kind_of(&challenge.r#type), detail }
}

fn detail_of(problem: &Problem) -> String {
    format!("{} ({})", problem::detail(problem), problem::short_type(problem.r#type.as_deref()))
}

/// The name that the authorization is for, without `*.`, if it is one that was asked for.
fn name_of(authorization: &AuthorizationState, names: &[String]) -> Result<(String, bool), AcmeError> {
    let identifier = authorization.identifier();
    let Identifier::Dns(name) = identifier.identifier else {
        return Err(AcmeError::malformed("an authorization is not for a name"));
    };
    let name = name.to_ascii_lowercase();
    let has = |wanted: &str| names.iter().any(|asked| asked == wanted);
    let is_wildcard = identifier.wildcard || !has(&name);
    if is_wildcard && !has(&format!("*.{name}")) {
        return Err(AcmeError::Certificate(format!("the order is for another name, {}", harmless(&name))));
    }
    Ok((name, is_wildcard))
}

/// The kind of challenge to answer: the first preferred one that the CA offers.
fn choose(
    authorization: &AuthorizationState,
    preferred: &[ChallengeKind],
    name: &str,
    is_wildcard: bool,
) -> Result<ChallengeKind, AcmeError> {
    let is_offered = |kind: ChallengeKind| {
        let offered = |challenge: &&instant_acme::Challenge| challenge.r#type == type_of(kind);
        authorization.challenges.iter().any(|challenge| offered(&challenge))
            && (!is_wildcard || kind == ChallengeKind::Dns01)
    };
    preferred.iter().copied().find(|kind| is_offered(*kind)).ok_or_else(|| {
        let list = |kinds: Vec<&str>| if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
        let offered = authorization.challenges.iter().filter_map(|challenge| kind_of(&challenge.r#type));
        let offered = list(offered.map(ChallengeKind::as_str).collect());
        let ours = list(preferred.iter().map(|kind| kind.as_str()).collect());
        let detail = format!("no challenge can be answered: the CA offers {offered}, and this installation has {ours}");
        AcmeError::Authorization { name: name.to_owned(), challenge: None, detail }
    })
}

fn type_of(kind: ChallengeKind) -> ChallengeType {
    match kind {
        ChallengeKind::Http01 => ChallengeType::Http01,
        ChallengeKind::TlsAlpn01 => ChallengeType::TlsAlpn01,
        ChallengeKind::Dns01 => ChallengeType::Dns01,
    }
}

fn kind_of(challenge_type: &ChallengeType) -> Option<ChallengeKind> {
    match challenge_type {
        ChallengeType::Http01 => Some(ChallengeKind::Http01),
        ChallengeType::TlsAlpn01 => Some(ChallengeKind::TlsAlpn01),
        ChallengeType::Dns01 => Some(ChallengeKind::Dns01),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn authorization(status: &str, wildcard: bool, challenges: &str) -> AuthorizationState {
        let text = format!(
            r#"{{"status":"{status}","wildcard":{wildcard},"identifier":{{"type":"dns","value":"A.test"}},
                "challenges":[{challenges}]}}"#
        );
        serde_json::from_str(&text).unwrap()
    }

    fn failed(kind: &str, problem: &str) -> AuthorizationState {
        let problem = format!(r#"{{"type":"urn:ietf:params:acme:error:{problem}","detail":"why"}}"#);
        let other = r#"{"type":"dns-persist-01","url":"https://a.test/0","status":"pending"}"#;
        let challenge = format!(r#"{{"type":"{kind}","url":"https://a.test/1","status":"invalid","error":{problem}}}"#);
        authorization("invalid", false, &format!("{other},{challenge}"))
    }

    #[test]
    fn the_challenge_that_failed_is_named() {
        let error = error_of(&failed("http-01", "connection"), "a.test");
        assert_eq!(error.to_string(), "the CA could not verify a.test: why (connection)");
        assert!(matches!(error, AcmeError::Authorization { challenge: Some(ChallengeKind::Http01), .. }));
        let error = error_of(&failed("dns-01", "caa"), "a.test");
        assert_eq!(error.to_string(), "a CAA record forbids this CA for a.test: why (caa)");
        let error = error_of(&authorization("expired", false, ""), "a.test");
        assert_eq!(error.to_string(), "the CA could not verify a.test: the authorization is expired");
    }

    #[test]
    fn an_authorization_is_for_a_name_that_was_asked_for() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let plain = authorization("pending", false, "");
        let wildcard = authorization("pending", true, "");
        let found = |state: &AuthorizationState, asked: &[&str]| name_of(state, &names(asked)).ok();
        assert_eq!(found(&plain, &["a.test"]), Some(("a.test".to_owned(), false)));
        assert_eq!(found(&wildcard, &["a.test", "*.a.test"]), Some(("a.test".to_owned(), true)));
        // A CA that forgets to say that it is a wildcard.
        assert_eq!(found(&plain, &["*.a.test"]), Some(("a.test".to_owned(), true)));
        assert_eq!(found(&plain, &["b.test"]), None);
        assert_eq!(found(&wildcard, &["a.test"]), None);
    }
}
