//! The failures of `sallyport`: which sentence, next step and exit code each error of this program gets.

use std::{error::Error, fmt, io, path::Path};

use sallyport_api::{FieldError, Problem};
pub(crate) use sallyport_cli::failure::{Failure, Kind, OutputClosed};
use sallyport_client::{ClientError, Lapse};
use sallyport_connector::ConnectorError;
use sallyport_store::{StoreError, TransferError};

use crate::machine::server_note;

/// The failure to print for an error; `None` if the output was closed.
pub(crate) fn describe(error: &anyhow::Error) -> Option<Failure> {
    sallyport_cli::failure::describe(error, of_cause)
}

/// The failure for an error of this program.
fn of_cause(cause: &(dyn Error + 'static)) -> Option<Failure> {
    if let Some(error) = cause.downcast_ref::<ClientError>() {
        return Some(of_client(error));
    }
    if let Some(error) = cause.downcast_ref::<ConnectorError>() {
        return Some(of_connector(error));
    }
    if let Some(error) = cause.downcast_ref::<StoreError>() {
        return Some(of_store(error));
    }
    cause.downcast_ref::<TransferError>().map(|error| match error {
        TransferError::Store(error) => of_store(error),
        TransferError::Nothing { .. } => Failure::new(Kind::NotFound, error.to_string()),
        TransferError::NotEmpty { .. } => Failure::new(Kind::Refused, error.to_string()),
        _ => Failure::new(Kind::Failed, error.to_string()),
    })
}

fn of_store(error: &StoreError) -> Failure {
    let kind = match error {
        StoreError::Unreachable { .. } => Kind::Unreachable,
        StoreError::Refused { .. } => Kind::Refused,
        _ => Kind::Failed,
    };
    Failure::new(kind, error.to_string())
}

/// Like [`describe`], for a command with a token: advice is about the token instead of a login.
pub(crate) fn describe_with_token(error: &anyhow::Error) -> Option<Failure> {
    let is_of_token = error.chain().any(|cause| {
        let Some(ClientError::Problem(problem)) = cause.downcast_ref() else { return false };
        problem.status == 401 && problem.code == "bad-token"
    });
    if !is_of_token {
        return describe(error);
    }
    let failure = Failure::new(Kind::NotLoggedIn, "the token given by --token or SALLYPORT_TOKEN is not valid");
    Some(failure.next("copy it again, make another with `sallyport token create`, or leave it out"))
}

/// A named file that cannot be read.
pub(crate) fn unreadable(file: &Path, error: &io::Error) -> Failure {
    Failure::usage(match error.kind() {
        io::ErrorKind::NotFound => format!("there is no file {}", file.display()),
        io::ErrorKind::InvalidData => format!("{} is no text", file.display()),
        _ => format!("cannot read {}: {error}", file.display()),
    })
}

/// The failure of an API call.
pub(crate) fn of_client(error: &ClientError) -> Failure {
    let failure = |kind| Failure::new(kind, error.to_string());
    match error {
        ClientError::Unreachable { advice: Some(advice), .. } => failure(Kind::Unreachable).next(advice),
        ClientError::Unreachable { api, .. } if api.is_local() => {
            let others = server_note::by_preference();
            failure(Kind::Unreachable).next(match others.iter().find(|note| !note.is_of(api)) {
                Some(other) => format!(
                    "the `sallyport up` of this machine is at {0}: `sallyport logout` leaves the former login, or give \
                     --api {0}",
                    other.api
                ),
                None => "is `sallyport up` running? Start it, or give another address with --api URL".to_owned(),
            })
        }
        ClientError::Unreachable { .. } => failure(Kind::Unreachable).next(
            "check the network, or give another address with --api URL; `sallyport status` lists the servers of \
             this machine",
        ),
        ClientError::Untrusted { api, .. } => failure(Kind::Unreachable).next(format!(
            "name its root certificate with --ca FILE, or pin it with `sallyport login --api {api} --ca-fingerprint \
             sha256:...`"
        )),
        ClientError::Lapsed { lapse: Lapse::Ended(_), .. } => failure(Kind::Unreachable).next(
            "check the clock of this machine; if it is right, the log of the server and `sallyport doctor` there say \
             why the certificate was not renewed",
        ),
        ClientError::Lapsed { lapse: Lapse::NotBegun(_), .. } => failure(Kind::Unreachable)
            .next("check the clock of this machine, then that of the server: `timedatectl set-ntp true` sets one"),
        ClientError::Lost { .. } | ClientError::TimedOut { .. } => {
            failure(Kind::Unreachable).next("look whether it was done before you try again")
        }
        ClientError::NotLoggedIn { .. } => {
            failure(Kind::NotLoggedIn).next("run `sallyport login --email you@example.com`, or set SALLYPORT_TOKEN")
        }
        ClientError::Problem(problem) => of_problem(problem),
        ClientError::Answer { .. } => failure(Kind::Failed)
            .next("is it the address of a Sallyport API, and of the same version? Give it with --api URL"),
        ClientError::Trust(_) | ClientError::Token | ClientError::Organisation => failure(Kind::Usage),
        ClientError::Sessions(_) => failure(Kind::Failed),
    }
}

/// How to name a socket, as advice.
const WHICH_SOCKET: &str = "see `sallyport socket ls`: a socket goes by its name, by the one in its URL such as \
                            wandering-shape-7752, or by its id";

/// The commands that list things, by the API's words for these things.
const WHICH: &[(&str, &str)] = &[
    ("socket", WHICH_SOCKET),
    ("policy", "see `sallyport policy ls`"),
    ("identity provider", "see `sallyport provider ls`"),
    ("provider", "see `sallyport provider ls`"),
    ("person", "see `sallyport person ls`"),
    ("member", "see `sallyport member ls`"),
    ("invitation", "see `sallyport invitation ls`, or `sallyport invitation ls --sent` for those of the organisation"),
    ("flow", "see `sallyport flow ls`: it may have ended by itself"),
    ("service token", "see `sallyport service-token ls`"),
    ("tunnel", "see `sallyport tunnel ls`"),
    ("domain", "see `sallyport domain ls`"),
    ("certificate", "see `sallyport cert ls`"),
    ("zone", "see `sallyport zone ls`"),
];

/// The error of a call about two things, with the name of the missing one.
pub(crate) fn about_both(
    error: ClientError,
    first: (&str, &dyn fmt::Display),
    second: Option<&dyn fmt::Display>,
) -> anyhow::Error {
    let is_first = matches!(&error, ClientError::Problem(problem) if problem.to_string().ends_with(first.0));
    about(error, second.filter(|_| !is_first).unwrap_or(first.1))
}

/// The error of a call about one thing, with its name if the API does not know it.
pub(crate) fn about(error: ClientError, thing: &dyn fmt::Display) -> anyhow::Error {
    match &error {
        ClientError::Problem(problem) if problem.status == 404 && problem.code != "no-such-organisation" => {
            let (sentence, thing) = (problem.to_string(), thing.to_string());
            // Avoids a repeated noun, as in "there is no such tunnel: tunnel 1".
            let missing_name = thing.split_once(' ').filter(|(kind, _)| sentence.ends_with(kind)).map(|(_, name)| name);
            let failure = Failure::new(Kind::NotFound, format!("{sentence}: {}", missing_name.unwrap_or(&thing)));
            let which = WHICH.iter().find(|(kind, _)| sentence.ends_with(kind));
            which.map_or(failure.clone(), |(_, step)| failure.next(*step)).into()
        }
        _ => error.into(),
    }
}

/// The error of a call with one refused value: its sentence says which one, without the name of the field.
pub(crate) fn of_value(error: ClientError) -> anyhow::Error {
    match &error {
        ClientError::Problem(problem) if problem.errors.len() == 1 => {
            Failure::new(Kind::Refused, problem.errors[0].detail.clone()).into()
        }
        _ => error.into(),
    }
}

/// The refusals that go away with `--force`.
const FORCED: [&str; 4] = ["opens-sockets", "closes-sockets", "provider-in-use", "provider-has-persons"];

/// The failure for a refusal of the API.
fn of_problem(problem: &Problem) -> Failure {
    let kind = match problem.status {
        401 => Kind::NotLoggedIn,
        403 => Kind::NotAllowed,
        404 => Kind::NotFound,
        400 | 409 | 410 | 413 | 422 => Kind::Refused,
        _ => Kind::Failed,
    };
    let message = in_flags(problem);
    let sentence = problem.to_string();
    let unmentioned = problem.errors.iter().filter(|error| !sentence.contains(&error.detail));
    let wrong: Vec<String> =
        unmentioned.map(|error| format!("{}: {}", flag_of(error).unwrap_or(&error.field), error.detail)).collect();
    let next_step = match problem.status {
        401 => Some("log in with `sallyport login --email you@example.com`, or use another API token".to_owned()),
        _ if problem.code == "no-such-organisation" => Some(
            "`sallyport organisation ls` shows yours; where it was chosen with `organisation use`, `sallyport \
             organisation use --own` goes back to your own"
                .to_owned(),
        ),
        _ if FORCED.contains(&problem.code.as_str()) => Some("if that is meant, add --force".to_owned()),
        403 if problem.code == "missing-role" => sentence.split_once("it takes the role ").map(|(_, role)| {
            format!("ask an admin of the organisation: `sallyport member edit YOUR_EMAIL --role {role}`")
        }),
        403 if problem.code == "missing-scope" => sentence
            .split_once("it needs the scope ")
            .map(|(_, scope)| scope.split(' ').next().unwrap_or(scope))
            .map(|scope| format!("make a token with it: `sallyport token create --name NAME --scope {scope}`")),
        409 if problem.code == "person-disabled" => {
            let email = sentence.split(' ').next().unwrap_or("EMAIL").to_owned();
            Some(format!("`sallyport person enable {email}`"))
        }
        409 if problem.code == "person-taken" => {
            Some("`sallyport person reset EMAIL` makes a new link for them".to_owned())
        }
        409 if problem.code == "no-local-provider" => Some("`sallyport provider add local`".to_owned()),
        _ if !wrong.is_empty() => Some(wrong.join("; ")),
        _ => None,
    };
    // The request id is shown only for faults of the server, whose log has it.
    let request_id = problem.request_id.clone().filter(|_| problem.status >= 500);
    Failure { kind, message, next_step, request_id }
}

/// The flags for fields of the API, by the beginning of the field's name.
const FLAGS: &[(&str, &str)] = &[
    ("access.allow", "--allow"),
    ("access.deny", "--deny"),
    ("access", "--allow"),
    ("affinity", "--affinity"),
    ("alpn", "--alpn"),
    ("amplification_guard", "--no-amplification-guard"),
    ("document", "the policy"),
    ("domains", "--domain"),
    ("label", "--name-label"),
    ("ca_pem", "--provider-ca"),
    ("check_minutes", "--check-minutes"),
    ("client_id", "--client-id"),
    ("client_secret", "--client-secret-file"),
    ("groups", "--group"),
    ("groups_claim", "--groups-claim"),
    ("hook", "--verification-hook"),
    ("issuer", "--issuer"),
    ("kind", "--kind"),
    ("tenant", "--tenant"),
    ("trust_email", "--trust-email"),
    ("require_totp", "--require-totp"),
    ("scopes", "--scope"),
    ("health_check", "--health-check"),
    ("identity.email_addresses", "--allowed-email-addresses"),
    ("identity.email_domains", "--allowed-email-domains"),
    ("identity.providers", "--identity-provider"),
    ("identity.session_minutes", "--session-minutes"),
    ("identity", "--cloudauth"),
    ("limits.bytes_per_second", "--bytes-per-second"),
    ("limits.max_connections", "--max-connections"),
    ("limits.queue", "--queue"),
    ("limits.requests_per_second", "--requests-per-second"),
    ("origin_protocol", "--origin-protocol"),
    ("policies", "--policy"),
    ("port", "--public-port"),
    ("protected.username", "--username"),
    ("protected", "--protected"),
    ("proxy_protocol", "--proxy-protocol"),
    ("public_key", "the public key"),
    ("ssh_key", "--ssh-key"),
    ("tls_mode", "--passthrough"),
    ("type", "--type"),
];

/// The flag for an invalid field. The API has the secret of a hook in the field of the client secret.
fn flag_of(error: &FieldError) -> Option<&'static str> {
    let is_of_hook = error.field == "client_secret"
        && (error.detail.contains("hook") || error.detail.contains("messages are signed"));
    let says = |word: &str| error.detail.contains(word);
    match error.field.as_str() {
        _ if is_of_hook => Some("--hook-secret-file"),
        "access" if says("denies") => Some("--deny"),
        "limits" if says("queue") => Some("--queue"),
        "limits" if says("bytes per second") => Some("--bytes-per-second"),
        "limits" if says("requests per second") => Some("--requests-per-second"),
        "limits" => Some("--max-connections"),
        field => flag(field),
    }
}

/// The flag for this field of the API.
fn flag(field: &str) -> Option<&'static str> {
    let is_it =
        |name: &str| field.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']));
    FLAGS.iter().find(|(name, _)| is_it(name)).map(|(_, flag)| *flag)
}

/// Words in sentences of the API, and the flags for them.
const WORDS: &[(&str, &str)] = &[
    ("; with force it is done all the same", ""),
    ("Sallyport-Organisation", "--organisation"),
    ("set identity there", "require a login there (--cloudauth)"),
    ("without identity", "without --cloudauth"),
    ("set identity", "add --cloudauth"),
    ("email_addresses", "--allowed-email-addresses"),
    ("email_domains", "--allowed-email-domains"),
    ("trust_email", "--trust-email"),
    ("force_command", "--force-command"),
    ("session_minutes", "--session-minutes"),
    ("groups_claim", "--groups-claim"),
    ("client_secret", "--client-secret-file"),
    ("client_id", "--client-id"),
];

/// The API's sentence, with flags in place of field names.
fn in_flags(problem: &Problem) -> String {
    let sentence = with_flags_ahead(problem);
    // In errors about rules, these words belong to the rule language.
    if problem.errors.iter().any(|error| error.field.starts_with("document")) {
        return sentence;
    }
    WORDS.iter().fold(sentence, |sentence, (word, flag)| {
        if sentence.contains(flag) && !flag.is_empty() { sentence } else { sentence.replace(word, flag) }
    })
}

fn with_flags_ahead(problem: &Problem) -> String {
    problem.errors.iter().fold(problem.to_string(), |sentence, error| match flag_of(error) {
        Some(flag) => {
            let (from, to) = (format!("{}: {}", error.field, error.detail), format!("{flag}: {}", error.detail));
            sentence.replacen(&from, &to, 1)
        }
        None => sentence,
    })
}

/// The failure of a tunnel that was lost.
fn of_connector(error: &ConnectorError) -> Failure {
    let code = match error {
        ConnectorError::Refused(refusal) | ConnectorError::SessionRefused(refusal) => &refusal.code,
        ConnectorError::Detached { code, .. } => code,
    };
    let failure = |kind| Failure::new(kind, error.to_string());
    match code.as_str() {
        "unknown-tunnel" | "deleted" => {
            failure(Kind::NotFound).next("look with `sallyport socket ls` and `sallyport tunnel ls`, or connect anew")
        }
        "bad-credential" => {
            failure(Kind::NotLoggedIn).next("the tunnel has got another credential since: connect anew")
        }
        "replaced" => {
            failure(Kind::Refused).next("a tunnel has one connector or ssh client at a time: give each its own")
        }
        "version" => failure(Kind::Failed).next("install the same version of sallyport here and there"),
        _ => failure(Kind::Failed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(status: u16) -> anyhow::Error {
        let json = format!(r#"{{"status":{status},"detail":"no","request_id":"r"}}"#);
        ClientError::Problem(Box::new(serde_json::from_str(&json).unwrap())).into()
    }

    #[test]
    fn refusals_of_the_api_have_the_exit_code_of_their_status() {
        for (status, code) in [(401, 3), (403, 3), (404, 4), (409, 5), (422, 5), (400, 5), (429, 1), (500, 1)] {
            let failure = describe(&problem(status)).unwrap();
            assert_eq!((failure.kind.exit_code(), failure.message.as_str()), (code, "no"), "{status}");
            assert_eq!(failure.request_id.is_some(), status >= 500, "{status}");
        }
    }

    #[test]
    fn fields_of_the_api_are_called_as_the_command_line_calls_them() {
        for (field, called) in [
            ("tls_mode", "--passthrough"),
            ("access.allow[0]", "--allow"),
            ("access", "--allow"),
            ("policies", "--policy"),
            ("port", "--public-port"),
            ("public_key", "the public key"),
            ("portal", "portal"),
            ("name", "name"),
        ] {
            let json = format!(
                r#"{{"status":422,"detail":"{field}: it is odd; name: no","errors":[{{"field":"{field}","detail":"it is odd"}}]}}"#
            );
            let error = ClientError::Problem(Box::new(serde_json::from_str(&json).unwrap()));
            let failure = describe(&error.into()).unwrap();
            assert_eq!(failure.message, format!("{called}: it is odd; name: no"));
            assert_eq!(failure.next_step, None);
        }
    }

    #[test]
    fn refusals_say_what_to_do_in_words_of_the_command_line() {
        let failure = |json: &str| {
            let error = ClientError::Problem(Box::new(serde_json::from_str(json).unwrap()));
            describe(&error.into()).unwrap()
        };
        let role = failure(
            r#"{"status":403,"code":"missing-role","detail":"a viewer of this organisation may not do that: it takes the role admin"}"#,
        );
        assert_eq!(role.kind, Kind::NotAllowed);
        assert!(role.next_step.unwrap().ends_with("`sallyport member edit YOUR_EMAIL --role admin`"));
        let scope = failure(
            r#"{"status":403,"code":"missing-scope","detail":"this token may not do that: it needs the scope a:b or c:d"}"#,
        );
        assert!(scope.next_step.unwrap().ends_with("--scope a:b`"));
        let disabled = failure(
            r#"{"status":409,"code":"person-disabled","detail":"bob@example.com is disabled: enable them first"}"#,
        );
        assert_eq!(disabled.next_step.as_deref(), Some("`sallyport person enable bob@example.com`"));
        let hook = failure(
            r#"{"status":422,"detail":"client_secret: a secret with which messages are signed is needed","errors":[{"field":"client_secret","detail":"a secret with which messages are signed is needed"}]}"#,
        );
        assert!(hook.message.starts_with("--hook-secret-file: "), "{}", hook.message);
        let nobody = failure(
            r#"{"status":422,"detail":"identity: give email_addresses","errors":[{"field":"identity","detail":"give email_addresses"}]}"#,
        );
        assert_eq!(nobody.message, "--cloudauth: give --allowed-email-addresses");
        assert_eq!(nobody.next_step, None, "it is sentence once");
    }

    #[test]
    fn what_does_not_exist_is_named_once() {
        let failure = |detail: &str| {
            let json = format!(r#"{{"status":404,"detail":"{detail}"}}"#);
            let error = ClientError::Problem(Box::new(serde_json::from_str(&json).unwrap()));
            describe(&about(error, &"tunnel 7 of calm-bay-1000")).unwrap()
        };
        assert_eq!(failure("there is no such tunnel").message, "there is no such tunnel: 7 of calm-bay-1000");
        let no_socket = failure("there is no such socket");
        assert_eq!(no_socket.message, "there is no such socket: tunnel 7 of calm-bay-1000");
        assert_eq!(no_socket.next_step.as_deref(), Some(WHICH_SOCKET));
    }

    #[test]
    fn a_token_that_was_given_is_not_taken_for_a_login() {
        let refused = |code: &str| -> anyhow::Error {
            let json =
                format!(r#"{{"status":401,"detail":"the access token is not valid: log in again","code":"{code}"}}"#);
            ClientError::Problem(Box::new(serde_json::from_str(&json).unwrap())).into()
        };
        let failure = describe_with_token(&refused("bad-token")).unwrap();
        assert_eq!(failure.kind.exit_code(), 3);
        assert_eq!(failure.message, "the token given by --token or SALLYPORT_TOKEN is not valid");
        assert_eq!(describe_with_token(&refused("wrong-login")), describe(&refused("wrong-login")));
    }

    #[test]
    fn the_failure_without_an_api_has_the_command_to_start() {
        let reason = "nothing listens there (connection refused)".to_owned();
        let api = "https://api.localhost:8443".parse().unwrap();
        let failure = describe(&ClientError::Unreachable { api, reason: reason.clone(), advice: None }.into()).unwrap();
        assert_eq!(failure.kind.exit_code(), 6);
        assert!(failure.next_step.unwrap().contains("`sallyport up`"));
        let api = "https://api.example.com".parse().unwrap();
        let failure = describe(&ClientError::Unreachable { api, reason: reason.clone(), advice: None }.into()).unwrap();
        assert!(!failure.next_step.unwrap().contains("`sallyport up`"));
        let api = "https://api.localhost:8443".parse().unwrap();
        let advice = Some("check the proxy".to_owned());
        let failure = describe(&ClientError::Unreachable { api, reason, advice }.into()).unwrap();
        assert_eq!(failure.next_step.as_deref(), Some("check the proxy"));
    }

    #[test]
    fn a_lapsed_certificate_leads_to_the_clock_and_not_to_another_root() {
        for lapse in [Lapse::Ended(None), Lapse::NotBegun(None)] {
            let api = "https://api.example.com".parse().unwrap();
            let failure = describe(&ClientError::Lapsed { api, lapse }.into()).unwrap();
            assert_eq!(failure.kind.exit_code(), 6);
            let next = failure.next_step.unwrap();
            assert!(next.starts_with("check the clock of this machine") && !next.contains("--ca"), "{next}");
        }
    }

    #[test]
    fn a_permanently_lost_tunnel_has_a_reason() {
        for (code, exit) in [("deleted", 4), ("unknown-tunnel", 4), ("bad-credential", 3), ("replaced", 5), ("odd", 1)]
        {
            let error = ConnectorError::Detached { code: code.into(), message: "gone".into() };
            let failure = describe(&anyhow::Error::new(error).context("holding")).unwrap();
            assert_eq!(failure.kind.exit_code(), exit, "{code}");
            assert!(failure.message.contains("gone"), "{}", failure.message);
        }
    }
}
