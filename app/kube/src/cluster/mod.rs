//! The connection to the API server of the cluster. Uses no other room.

use std::{path::Path, time::Duration};

use anyhow::Context as _;
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
};
use sallyport_cli::failure::{Failure, Kind};

/// How long a connection to the API server may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// The namespace outside of a cluster.
const DEFAULT_NAMESPACE: &str = "default";
/// Where a pod finds its namespace.
const NAMESPACE_FILE: &str = "/var/run/secrets/kubernetes.io/serviceaccount/namespace";

/// A client of the cluster that the file names, else of the one that this pod runs in.
///
/// # Errors
/// There is no cluster, or its settings cannot be used.
pub(crate) async fn connect(kubeconfig: Option<&Path>) -> anyhow::Result<Client> {
    let mut config = match kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path).with_context(|| format!("cannot read {}", path.display()))?;
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
                .await
                .with_context(|| format!("{} names no cluster that can be used", path.display()))?
        }
        // A pod's own service account goes before a file that an image may happen to have.
        None => match Config::incluster() {
            Ok(config) => config,
            Err(_) => Config::infer().await.map_err(|error| {
                Failure::new(Kind::Failed, format!("there is no cluster here: {error}"))
                    .next("run it in a pod with a service account, or give --kubeconfig FILE")
            })?,
        },
    };
    config.connect_timeout = Some(CONNECT_TIMEOUT);
    Ok(Client::try_from(config)?)
}

/// An error of the API server or of its connection as one sentence, with its causes.
pub(crate) fn sentence(error: &(dyn std::error::Error + 'static)) -> String {
    let mut texts: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(cause) = next {
        let text = match cause.downcast_ref::<kube::Error>() {
            Some(kube::Error::Api(status)) => return status.message.clone(),
            // Its own text says only that it is about the service.
            Some(kube::Error::Service(_)) => String::new(),
            _ => cause.to_string(),
        };
        if !text.is_empty() && !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
        next = cause.source();
    }
    texts.join(": ")
}

/// The namespace of the service account of this pod.
pub(crate) fn own_namespace() -> String {
    let text = std::fs::read_to_string(NAMESPACE_FILE).unwrap_or_default();
    let name = text.trim();
    if name.is_empty() { DEFAULT_NAMESPACE.to_owned() } else { name.to_owned() }
}
