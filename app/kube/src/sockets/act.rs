//! One action of a plan at the API.

use sallyport_api::{PolicyPlace, Socket};
use sallyport_client::{ApiClient, ClientError, PolicyRef, SocketRef};
use sallyport_kube_model::{Action, Failure, Field};
use sallyport_model::SocketId;

use super::spec;

/// What an action came to.
#[derive(Debug)]
pub(super) enum Done {
    /// The socket is there, as it is now.
    Socket(Box<Socket>),
    /// The socket is gone.
    Gone(SocketId),
}

/// Does it. `key` makes a creation idempotent.
pub(super) async fn act(client: &ApiClient, action: &Action, key: &str) -> Result<Done, ClientError> {
    match action {
        Action::Create { spec, labels, .. } => {
            let created = client.create_socket(&spec::to_create(spec, labels), key).await?;
            Ok(Done::Socket(Box::new(created)))
        }
        Action::Update { id, fields, attach, detach, spec, labels, .. } => {
            let reference = SocketRef::from(*id);
            let mut socket = None;
            if fields.iter().any(|field| *field != Field::Policies) {
                socket = Some(client.update_socket(&reference, &spec::to_update(fields, spec, labels)).await?);
            }
            if fields.contains(&Field::Policies) {
                set_policies(client, *id, attach, detach).await?;
                socket = None;
            }
            let socket = match socket {
                Some(socket) => socket,
                None => client.socket(&reference).await?,
            };
            Ok(Done::Socket(Box::new(socket)))
        }
        Action::Delete { id, .. } => match client.delete_socket(&SocketRef::from(*id)).await {
            Err(error) if error.status() != Some(404) => Err(error),
            _ => Ok(Done::Gone(*id)),
        },
    }
}

/// Attaches the policies that are missing, and then detaches those that are too many: access never opens in between.
async fn set_policies(
    client: &ApiClient,
    socket: SocketId,
    attach: &[String],
    detach: &[String],
) -> Result<(), ClientError> {
    let place = PolicyPlace { socket: Some(socket.to_string()), everywhere: false, force: false };
    for policy in attach.iter().filter_map(|name| name.parse::<PolicyRef>().ok()) {
        client.attach_policy(&policy, &place).await?;
    }
    // The annotation that asked for the policy is gone, so access opens on purpose.
    let place = PolicyPlace { force: true, ..place };
    for policy in detach.iter().filter_map(|name| name.parse::<PolicyRef>().ok()) {
        client.detach_policy(&policy, &place).await?;
    }
    Ok(())
}

/// What an error means for the next attempt.
pub(super) fn failure(error: &ClientError) -> Failure {
    match error {
        ClientError::Problem(problem) => Failure::of(problem.status, &problem.code, problem.retry_after),
        ClientError::NotLoggedIn { .. } | ClientError::Token => Failure::Unauthorized,
        _ => Failure::Server,
    }
}

/// What went wrong and what to do, for people.
pub(super) fn sentence(error: &ClientError, failure: Failure) -> String {
    let fields = match error {
        ClientError::Problem(problem) => {
            let details = problem.errors.iter().filter(|one| !problem.detail.contains(&one.detail));
            details.map(|one| format!("; {}: {}", one.field, one.detail)).collect::<String>()
        }
        _ => String::new(),
    };
    format!("{error}{fields}; {}", failure.remedy())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_api_says_how_long_to_wait() {
        let json = r#"{ "status": 429, "title": "Too Many Requests", "detail": "wait", "code": "too-many" }"#;
        let mut problem: sallyport_client::ProblemAnswer = serde_json::from_str(json).unwrap();
        let of = |problem: &sallyport_client::ProblemAnswer| failure(&ClientError::Problem(Box::new(problem.clone())));
        assert_eq!(of(&problem), Failure::TooMany { retry_after: None });
        problem.retry_after = Some(Duration::from_secs(7));
        assert_eq!(of(&problem), Failure::TooMany { retry_after: Some(Duration::from_secs(7)) });
    }
}
