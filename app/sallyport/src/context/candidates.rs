//! Names for completion, which the API lists within a time limit. If that fails, nothing is offered.

use std::{
    ffi::{OsStr, OsString},
    future::Future,
    time::Duration,
};

use clap::Parser as _;
use clap_complete::engine::CompletionCandidate;
use sallyport_cli::completion::words;
use sallyport_client::{ApiClient, ClientError, SocketRef};
use sallyport_model::ShortId;
use time::UtcOffset;

use super::{Context, Global};
use crate::{
    args::argv,
    output::{Color, Format, Output},
    view::quoted,
};

/// How long the API may take to answer at all.
const MAX_PROBE: Duration = Duration::from_secs(1);
/// How long the list may take then, with the time to refresh a login, which must not be interrupted.
const MAX_LIST: Duration = Duration::from_secs(5);
/// How many names are offered.
const MAX_CANDIDATES: usize = 200;
/// The options that select the API.
const OF_API: [&str; 5] = ["--api", "--ca", "--token", "--organisation", "--proxy"];

/// Names and ids of one kind, each with a description.
type Candidates = Vec<(String, String)>;

/// The candidates that begin with the typed word.
fn offer<F, W>(current: &OsStr, ask: F) -> Vec<CompletionCandidate>
where
    F: FnOnce(ApiClient) -> W,
    W: Future<Output = Result<Candidates, ClientError>>,
{
    // The typed word may begin with a quote.
    let typed = current.to_string_lossy().trim_start_matches(['\'', '"']).replace('\\', "").to_lowercase();
    let named = list(ask).unwrap_or_default();
    let fits = named.into_iter().filter(|(name, _)| name.to_lowercase().starts_with(&typed)).take(MAX_CANDIDATES);
    fits.map(|(name, about)| CompletionCandidate::new(as_word(name)).help(Some(about.into()))).collect()
}

/// The name escaped for bash; other shells quote by themselves.
fn as_word(name: String) -> String {
    let is_bash = std::env::var_os("_CLAP_COMPLETE_COMP_TYPE").is_some();
    if is_bash { quoted(&name).into_owned() } else { name }
}

fn list<F, W>(ask: F) -> Option<Candidates>
where
    F: FnOnce(ApiClient) -> W,
    W: Future<Output = Result<Candidates, ClientError>>,
{
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
    let named = runtime.block_on(async {
        let context = Context::new(global()?, Output::new(Format::Table, Color::Never), UtcOffset::UTC);
        let target = context.target().ok()?;
        tokio::time::timeout(MAX_PROBE, context.anonymous_client(&target).ok()?.info()).await.ok()?.ok()?;
        tokio::time::timeout(MAX_LIST, ask(context.client(&target).ok()?)).await.ok()?.ok()
    });
    runtime.shutdown_background();
    named
}

/// The global options in the line that select the API.
fn global() -> Option<Global> {
    #[derive(clap::Parser)]
    #[command(no_binary_name = true, disable_help_flag = true)]
    struct Line {
        #[command(flatten)]
        global: Global,
    }
    let words = argv::fold_underscores(words());
    let mut words_of_api: Vec<OsString> = Vec::new();
    for (at, word) in words.iter().enumerate() {
        let text = word.to_string_lossy();
        if OF_API.iter().any(|flag| text == *flag) {
            words_of_api.push(word.clone());
            words_of_api.extend(words.get(at + 1).cloned());
        } else if OF_API.iter().any(|flag| text.strip_prefix(flag).is_some_and(|rest| rest.starts_with('='))) {
            words_of_api.push(word.clone());
        }
    }
    Line::try_parse_from(words_of_api).ok().map(|line| line.global)
}

/// The devices of this machine that may be links, and `auto`.
pub(crate) fn links(current: &OsStr) -> Vec<CompletionCandidate> {
    let typed = current.to_string_lossy();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok();
    let devices = runtime.and_then(|runtime| runtime.block_on(sallyport_links::devices()).ok()).unwrap_or_default();
    let named = devices.iter().map(|device| (device.name.as_str(), device.kind.as_str()));
    let all = [("auto", "every link that reaches other networks")].into_iter().chain(named);
    let fits = all.filter(|(name, _)| name.starts_with(&*typed)).take(MAX_CANDIDATES);
    fits.map(|(name, about)| CompletionCandidate::new(name).help(Some(about.into()))).collect()
}

/// Sockets, by name.
pub(crate) fn sockets(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        let sockets = client.sockets().await?;
        let by_name = sockets.iter().map(|socket| (socket.name.to_string(), socket.url.clone()));
        let by_label = sockets.iter().filter_map(|socket| Some((socket.label()?.to_string(), socket.name.to_string())));
        Ok(by_name.chain(by_label).collect())
    })
}

/// Tunnels, by name, and by id where they have none.
pub(crate) fn tunnels(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        let tunnels = client.tunnels(&SocketRef::Any).await?;
        let named = |tunnel: &sallyport_api::Tunnel| match &tunnel.name {
            Some(name) => name.to_string(),
            None => ShortId::shown(tunnel.id),
        };
        Ok(tunnels.iter().map(|tunnel| (named(tunnel), tunnel.host.clone().unwrap_or_default())).collect())
    })
}

/// Policies, by name.
pub(crate) fn policies(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.policies().await?.iter().map(|one| (one.name.to_string(), String::new())).collect())
    })
}

/// Members of the organisation, by e-mail address.
pub(crate) fn members(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.members().await?.into_iter().map(|one| (one.email.to_string(), one.name)).collect())
    })
}

/// Persons of the provider of kind local, by e-mail address.
pub(crate) fn persons(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        let persons = client.persons().await?;
        Ok(persons.into_iter().map(|one| (one.email.to_string(), one.name.unwrap_or_default())).collect())
    })
}

/// Identity providers, by name.
pub(crate) fn providers(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.providers().await?.iter().map(|one| (one.name.to_string(), one.kind.to_string())).collect())
    })
}

/// Edges, by name.
pub(crate) fn edges(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.edges().await?.iter().map(|one| (one.name.to_string(), one.region.to_string())).collect())
    })
}

/// API tokens, by name.
pub(crate) fn tokens(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.tokens().await?.iter().map(|one| (one.name.to_string(), ShortId::shown(one.id))).collect())
    })
}

/// Service tokens, by name.
pub(crate) fn service_tokens(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.service_tokens().await?.iter().map(|one| (one.name.to_string(), ShortId::shown(one.id))).collect())
    })
}

/// Domains, by name.
pub(crate) fn domains(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.domains().await?.into_iter().map(|one| (one.name, one.socket.unwrap_or_default())).collect())
    })
}

/// Zones, by name.
pub(crate) fn zones(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.zones().await?.into_iter().map(|one| (one.name, format!("{} records", one.records))).collect())
    })
}

/// Networks of machines, by name.
pub(crate) fn networks(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.networks().await?.into_iter().map(|one| (one.name, one.ranges.join(" "))).collect())
    })
}

/// Certificates, by their first names.
pub(crate) fn certificates(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        let all = client.certificates().await?.into_iter();
        Ok(all.filter_map(|one| Some((one.names.first()?.clone(), one.source))).collect())
    })
}

/// Ssh keys, by name.
pub(crate) fn ssh_keys(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.ssh_keys().await?.into_iter().map(|one| (one.name, one.fingerprint)).collect())
    })
}

/// Organisations of the account, by name.
pub(crate) fn organisations(current: &OsStr) -> Vec<CompletionCandidate> {
    offer(current, async |client: ApiClient| {
        Ok(client.organisations().await?.into_iter().map(|one| (one.name, one.role.to_string())).collect())
    })
}
