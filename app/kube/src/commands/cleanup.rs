//! `sallyport kube cleanup`: takes what the controller left out of the cluster and off the API, before it is removed.

use kube::Client;
use sallyport_cli::{
    failure::{Failure, Kind},
    output::Output,
};
use sallyport_client::SocketRef;
use sallyport_kube_model::{Settings, Source};

use crate::{
    args::CleanupArgs,
    commands,
    control::ControlApi,
    lead, sockets,
    status::{ClusterWriter, StatusUpdate},
    watch::has_condition,
};

/// Takes the lease from the replicas, deletes the sockets, and removes finalizers and conditions.
///
/// # Errors
/// The cluster or the API refuses, or something is left.
pub(crate) async fn cleanup(
    client: &Client,
    control: &ControlApi,
    settings: &Settings,
    args: &CleanupArgs,
    namespace: &str,
    output: &Output,
) -> anyhow::Result<()> {
    let installation = &args.installation;
    // Replicas that run would make everything anew.
    lead::seize(client, namespace).await?;
    let (mut deleted, mut left) = (0, Vec::new());
    if !args.keep_sockets {
        // Finalizers go whatever becomes of the sockets: no Service and no namespace waits for an API that is away.
        match delete_sockets(control, settings, &mut left).await {
            Ok(count) => deleted = count,
            Err(error) => left.push(format!("the sockets: {error}")),
        }
    }
    let view = commands::view_of(client, settings, &installation.watch_namespaces, &installation.class).await?;
    let writer = ClusterWriter::new(client.clone(), "cleanup", std::sync::Arc::default());
    let mut cleaned = 0;
    for (key, source) in &view.sources {
        let is_of_class = matches!(source, Source::Service(service) if service.load_balancer_class.as_deref()
            == Some(sallyport_kube_model::CLASS) && !service.status.is_empty());
        let (has_finalizer, has_condition) = (source.meta().has_finalizer(), has_condition(source));
        if !(has_finalizer || has_condition || is_of_class) {
            continue;
        }
        if let Err(error) = writer.status(key, &StatusUpdate::default()).await {
            left.push(format!("the status of {key}: {error}"));
        }
        if has_finalizer && let Err(error) = writer.remove_finalizer(key).await {
            left.push(format!("the finalizer of {key}: {error}"));
        }
        cleaned += 1;
    }
    output.hint(&format!("{deleted} sockets deleted, {cleaned} objects cleaned"));
    match left.as_slice() {
        [] => Ok(()),
        [first, more @ ..] => {
            let others = if more.is_empty() { String::new() } else { format!("; {} more", more.len()) };
            Err(Failure::new(Kind::Failed, format!("something is left: {first}{others}")).next("run it again").into())
        }
    }
}

/// Deletes the sockets of this cluster; gives how many, and adds those that are left.
async fn delete_sockets(control: &ControlApi, settings: &Settings, left: &mut Vec<String>) -> Result<usize, Failure> {
    let api = commands::client_of(control)?;
    let owned = sockets::of_cluster(&api, settings).await.map_err(|error| commands::failed(&error))?;
    let mut deleted = 0;
    for (key, socket) in owned {
        match api.delete_socket(&SocketRef::from(socket.id)).await {
            Err(error) if error.status() != Some(404) => left.push(format!("the socket of {key}: {error}")),
            _ => deleted += 1,
        }
    }
    Ok(deleted)
}
