//! The identity of an edge: one file in its data directory.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use sallyport_api::{EdgeBootstrap, EdgeCertificates, JoinedEdge, Secret};
use sallyport_bus::{BusConfig, BusCredentials, SteeringKey};
use sallyport_model::{EdgeId, EdgeName, RegionName};
use serde::{Deserialize, Serialize};

/// The file.
pub(super) const STATE_FILE: &str = "edge.json";
/// The authority of the bus as a file.
const BUS_CA_FILE: &str = "bus-ca.pem";
/// The version of the file's format.
const SCHEMA: u32 = 1;

/// The identity of an edge, and what it needs to reach the others.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct EdgeState {
    schema: u32,
    pub(super) id: EdgeId,
    pub(super) name: EdgeName,
    pub(super) region: RegionName,
    /// Its private key, in PEM.
    pub(super) key: Secret,
    pub(super) certificates: EdgeCertificates,
    /// When the certificates were issued, in seconds since 1970.
    pub(super) certified_at: i64,
    #[serde(rename = "world")]
    pub(super) bootstrap: EdgeBootstrap,
    /// Grows with every start of the edge.
    pub(super) epoch: u64,
}

#[derive(Deserialize)]
struct Head {
    schema: u32,
}

impl EdgeState {
    pub(super) fn new(joined: JoinedEdge, key: String, now: i64) -> Self {
        let JoinedEdge { id, name, region, certificates, bootstrap, .. } = joined;
        let key = Secret::from(key);
        Self { schema: SCHEMA, id, name, region, key, certificates, certified_at: now, bootstrap, epoch: 0 }
    }

    /// The state in this directory; `None` if there is none.
    pub(super) fn read(dir: &Path) -> anyhow::Result<Option<Self>> {
        let path = dir.join(STATE_FILE);
        let text = match fs::read(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.with_context(|| format!("cannot read {}", path.display()))?,
        };
        let damaged = || format!("{} is damaged: restore it, or remove it and join again", path.display());
        let Head { schema } = serde_json::from_slice(&text).with_context(damaged)?;
        anyhow::ensure!(
            schema == SCHEMA,
            "{} has schema {schema}, and this program reads schema {SCHEMA}: use the program that wrote it, or join \
             again",
            path.display()
        );
        serde_json::from_slice(&text).with_context(damaged).map(Some)
    }

    /// Writes the state atomically.
    pub(super) fn write(&self, dir: &Path) -> anyhow::Result<()> {
        let (path, draft) = (dir.join(STATE_FILE), dir.join(format!("{STATE_FILE}.new")));
        let write = || -> io::Result<()> {
            let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&draft)?;
            file.write_all(&serde_json::to_vec_pretty(self)?)?;
            file.sync_all()?;
            fs::rename(&draft, &path)?;
            if let Some(ca) = &self.bootstrap.bus_ca {
                fs::write(dir.join(BUS_CA_FILE), ca)?;
            }
            File::open(dir)?.sync_all()
        };
        write().with_context(|| format!("cannot write {}", path.display()))
    }

    /// The address of the bus.
    pub(super) fn bus(&self, dir: &Path) -> BusConfig {
        let bootstrap = &self.bootstrap;
        let credentials = bus_credentials(bootstrap);
        BusConfig {
            servers: bootstrap.bus.clone(),
            credentials,
            ca: bootstrap.bus_ca.as_ref().map(|_| dir.join(BUS_CA_FILE)),
            name: format!("sallyport edge {}", self.name),
            is_edge: true,
        }
    }
}

/// Decodes a key from control.
pub(super) fn key(secret: &Secret) -> anyhow::Result<[u8; 32]> {
    let bytes = URL_SAFE_NO_PAD.decode(secret.expose()).ok();
    bytes.and_then(|bytes| bytes.try_into().ok()).context("a key of the installation is damaged: join again")
}

/// The edge's key for messages about steering, if control has sent one.
pub(super) fn steering_key(bootstrap: &EdgeBootstrap) -> Option<SteeringKey> {
    let bytes = key(bootstrap.steering_key.as_ref()?).ok()?;
    Some(SteeringKey::new(&bytes))
}

/// The edge's credentials for the bus.
pub(super) fn bus_credentials(bootstrap: &EdgeBootstrap) -> BusCredentials {
    match (&bootstrap.bus_user, &bootstrap.bus_password, &bootstrap.bus_token) {
        (Some(user), Some(password), _) => {
            BusCredentials::Password { user: user.clone(), password: password.expose().to_owned() }
        }
        (_, _, Some(token)) => BusCredentials::Token(token.expose().to_owned()),
        _ => BusCredentials::None,
    }
}
