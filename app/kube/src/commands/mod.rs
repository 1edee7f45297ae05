//! The commands beside the controller: `ls` and `cleanup`. Uses `cluster`, `control`, `lead`, `sockets`, `status` and
//! `watch`.

mod cleanup;
mod ls;

use std::time::Duration;

use kube::Client;
use sallyport_cli::failure::{Failure, Kind};
use sallyport_client::{ApiClient, ClientError};
use sallyport_kube_model::Settings;
use sallyport_net::Shutdown;

pub(crate) use self::{cleanup::cleanup, ls::ls};
use crate::watch::{Mirror, View};

/// How long the lists of the cluster may take.
const LIST_TIME: Duration = Duration::from_secs(60);

/// What the cluster asks for now.
async fn view_of(client: &Client, settings: &Settings, namespaces: &[String], class: &str) -> anyhow::Result<View> {
    let shutdown = Shutdown::new();
    let mirror = Mirror::start(client, namespaces, &shutdown);
    let mut changes = mirror.watch();
    let complete = async {
        while !mirror.is_complete() {
            // The sender lives as long as the mirror.
            let _ = changes.changed().await;
        }
    };
    let is_complete = tokio::time::timeout(LIST_TIME, complete).await.is_ok();
    let view = View::read(&mirror, settings, class);
    shutdown.trigger();
    if is_complete {
        return Ok(view);
    }
    let text = format!("the API server of the cluster did not list everything within {} seconds", LIST_TIME.as_secs());
    let next = "look whether it answers, and whether this account may list Services, EndpointSlices, Ingresses and their \
                classes";
    Err(Failure::new(Kind::Unreachable, text).next(next).into())
}

/// The client of the API.
fn client_of(control: &crate::control::ControlApi) -> Result<ApiClient, Failure> {
    control.client().map_err(|problem| Failure::new(Kind::NotLoggedIn, problem))
}

/// The failure of a call of the API.
fn failed(error: &ClientError) -> Failure {
    let kind = match error.status() {
        Some(401 | 403) => Kind::NotAllowed,
        Some(404) => Kind::NotFound,
        Some(status) if status < 500 => Kind::Refused,
        Some(_) => Kind::Failed,
        None => Kind::Unreachable,
    };
    Failure::new(kind, error.to_string())
}
