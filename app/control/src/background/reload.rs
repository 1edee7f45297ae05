//! Reading the store again, where another process may have changed it.

use std::collections::{HashMap, HashSet};

use anyhow::Context as _;

use crate::state::{App, Control};

impl Control {
    /// Reads every socket from the store again, and publishes the differences to edges: for changes that another
    /// process made to the store. Returns how many sockets differed.
    ///
    /// # Errors
    /// When the store cannot be read; nothing was published then.
    pub async fn reload(&self) -> anyhow::Result<usize> {
        let app = &self.app;
        // Before the publishing lock: the maker of a temporary socket delays the sweep, and publishes what it has made.
        app.sweep().await.context("cannot remove the temporary sockets of ssh clients")?;
        let _turn = app.publishing.lock().await;
        app.reload_edge_orders().await.context("cannot read the edges again")?;
        let stored = app.store.routes().await.context("cannot read the sockets again")?;
        let logins = app.store.ssh_logins().await.context("cannot read the ssh keys again")?;
        let accounts = app.store.count_accounts().await.context("cannot count the accounts again")?;
        let mut known: HashMap<_, _> = app.routes.all().into_iter().map(|route| (route.id, route)).collect();
        let mut differed = 0;
        for route in stored {
            if known.remove(&route.id).is_none_or(|known| *known != route) {
                app.put(route);
                differed += 1;
            }
        }
        differed += known.len();
        known.into_keys().for_each(|id| app.remove(id));
        let mut without_keys: HashSet<_> = app.ssh_logins.accounts().into_iter().collect();
        for login in logins {
            without_keys.remove(&login.account);
            app.ssh_logins.put(login);
        }
        without_keys.into_iter().for_each(|account| app.ssh_logins.remove(account));
        app.reload_identities(NewLogins::Publish).await?;
        app.reload_certificates()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot read the certificates again")?;
        app.reload_anycast()
            .await
            .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
            .context("cannot read the prefixes of anycast again")?;
        app.reload_egress().await.context("cannot read the egress addresses again")?;
        app.reload_networks().await.context("cannot read the networks again")?;
        app.reload_balancers().await.context("cannot read the balancers of sites again")?;
        if app.config.has_name_server {
            app.reload_zones()
                .await
                .map_err(|error| anyhow::anyhow!("{}", error.inner().unwrap_or(error.sentence())))
                .context("cannot read the zones again")?;
        }
        app.metrics.accounts.set(i64::try_from(accounts).unwrap_or(i64::MAX));
        Ok(differed)
    }

    /// Reads logins and tokens from the store, for a process that only finishes what runs while another one serves new
    /// requests. What ends there ends here. What is gone from the store stays as it was.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn catch_up(&self) -> anyhow::Result<()> {
        let app = &self.app;
        let _turn = app.publishing.lock().await;
        for route in app.store.routes().await.context("cannot read the sockets")? {
            if app.routes.get(route.id).is_some_and(|known| *known != app.config.served(route.clone())) {
                app.put(route);
            }
        }
        app.reload_identities(NewLogins::Ignore).await
    }
}

/// What to do with logins and service tokens that edges do not know yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NewLogins {
    /// Publish them to edges.
    Publish,
    /// Leave them to another process.
    Ignore,
}

impl App {
    /// Ends logins and service tokens at the edges that the store does not have.
    async fn reload_identities(&self, new_logins: NewLogins) -> anyhow::Result<()> {
        let now = self.clock.now().unix_seconds;
        let sessions = self.store.all_person_sessions(now).await.context("cannot read the logins of persons")?;
        let good: HashSet<_> = sessions.iter().map(|session| session.id).collect();
        // The process that begins logins may have begun one since the store was read.
        let is_new = |at: i64| new_logins == NewLogins::Publish && at >= now;
        self.identities.end_sessions(|session| !good.contains(&session.id) && !is_new(session.authenticated_at));
        let tokens = self.store.service_token_routes(now).await.context("cannot read the service tokens")?;
        let good: HashSet<_> = tokens.iter().map(|token| token.id).collect();
        self.identities.end_tokens(|token| !good.contains(&token.id));
        if new_logins == NewLogins::Publish {
            sessions.into_iter().for_each(|session| self.identities.put_session(session));
            tokens.into_iter().for_each(|token| self.identities.put_token(token));
        }
        Ok(())
    }
}
