//! `sallyport kube ls`: what the cluster asks for, and what it has.

use kube::Client;
use sallyport_cli::output::{self, Output};
use sallyport_kube_model::{ExposureKey, Settings};
use serde::Serialize;

use crate::{args::InstallationArgs, commands, control::ControlApi, sockets, watch::View};

/// A port that is exposed or refused.
#[derive(Debug, Serialize)]
struct Row {
    kind: &'static str,
    namespace: String,
    name: String,
    /// The port of a Service, or the host of an Ingress; none where the whole object is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<String>,
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    socket_type: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    tunnels_up: u32,
    /// What is wrong and what to do.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Prints the list.
///
/// # Errors
/// The cluster or the API cannot be read.
pub(crate) async fn ls(
    client: &Client,
    control: &ControlApi,
    settings: &Settings,
    args: &InstallationArgs,
    output: &Output,
) -> anyhow::Result<()> {
    let view = commands::view_of(client, settings, &args.watch_namespaces, &args.class).await?;
    let api = commands::client_of(control)?;
    let sockets = sockets::of_cluster(&api, settings).await.map_err(|error| commands::failed(&error))?;
    let rows = rows(&view, &sockets);
    output.list(&rows, "nothing asks for a public name", |rows| {
        output::table(
            ["OBJECT", "PORT", "TYPE", "URL", "PROBLEM"],
            rows.iter().map(|row| {
                let text = |value: &Option<String>| value.clone().unwrap_or_default();
                let object = format!("{} {}/{}", row.kind, row.namespace, row.name);
                [object, text(&row.port), text(&row.socket_type), text(&row.url), text(&row.problem)]
            }),
        )
    })
}

fn rows(view: &View, sockets: &[(ExposureKey, sallyport_api::Socket)]) -> Vec<Row> {
    let mut rows = Vec::new();
    for (object, exposures) in &view.exposures {
        let row = |port, socket_type, socket: Option<&sallyport_api::Socket>, problem| Row {
            kind: object.kind.title(),
            namespace: object.namespace.clone(),
            name: object.name.clone(),
            port,
            socket_type,
            url: socket.map(|socket| socket.url.clone()),
            tunnels_up: socket.map_or(0, |socket| socket.tunnels_up),
            problem,
        };
        for exposure in &exposures.desired {
            let socket = sockets.iter().find(|(key, _)| *key == exposure.key).map(|(_, socket)| socket);
            let problem = socket.is_none().then(|| "there is no socket yet".to_owned());
            let socket_type = Some(exposure.spec.socket_type.to_string());
            rows.push(row(Some(exposure.key.port.clone()), socket_type, socket, problem));
        }
        for refusal in &exposures.refusals {
            rows.push(row(None, None, None, Some(refusal.sentence())));
        }
    }
    rows
}
