//! The keys of an installation: files that are made once. Several controls over one database share them: the database
//! has them sealed with a key that the operator gives to each control.

use std::{
    collections::BTreeMap,
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::Context as _;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use clap::{Args, ValueEnum};
use sallyport_control::{Secrets, TOKEN_KEY_FILE};
use sallyport_identity::{NONCE_BYTES, Purpose, Sealer};
use sallyport_net::{CA_CERTIFICATE_FILE, CA_KEY_FILE, CaError, LocalCa};
use sallyport_pki::NODE_DOMAIN;
use sallyport_ssh::{ECDSA_KEY_FILE, ED25519_KEY_FILE, HostKeys, USER_AUTHORITY_FILE, UserAuthority};
use sallyport_store::Store;
use serde::{Deserialize, Serialize};
use tracing::{info, warn};

use crate::{
    failure::{Failure, Kind},
    installation::database,
};

/// The file in the data directory with the key that opens the others.
pub(crate) const KEY_FILE: &str = "installation.key";
/// The folder of the authority of the installation's machines.
pub(crate) const NODES_DIR: &str = "nodes";
/// The variable with the key that opens the others.
const KEY_VARIABLE: &str = "SALLYPORT_KEY";
/// The prefix of such a key.
const KEY_PREFIX: &str = "spk_";
/// The longest file with a key, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 16 * 1_024;
/// The folder for opened keys.
const UNPACKED_DIR: &str = ".keys";
/// The keys by purpose: the files of a group are made, sealed and opened together.
const GROUPS: [(&str, &[&str]); 4] = [
    ("token", &[TOKEN_KEY_FILE]),
    ("site", &[CA_CERTIFICATE_FILE, CA_KEY_FILE]),
    ("nodes", &["nodes/ca.pem", "nodes/ca.key"]),
    ("ssh", &[ED25519_KEY_FILE, ECDSA_KEY_FILE, USER_AUTHORITY_FILE]),
];

/// Options for the key that opens an installation's keys.
#[derive(Debug, Args)]
pub(crate) struct KeyArgs {
    /// The file with the key that seals the installation's keys in PostgreSQL; only its owner may read the file.
    /// SALLYPORT_KEY may hold the key itself [default: installation.key in the data directory, which the first control
    /// creates]
    #[arg(long, value_name = "FILE", env = "SALLYPORT_KEY_FILE")]
    pub(crate) key_file: Option<PathBuf>,
}

/// A key of 256 random bits that opens the others.
struct Key {
    sealer: Sealer,
    text: String,
}

impl Key {
    fn make() -> anyhow::Result<Self> {
        let text = format!("{KEY_PREFIX}{}", URL_SAFE_NO_PAD.encode(random::<32>()?));
        Self::parse(&text).context("a key was not made")
    }

    fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text.trim().strip_prefix(KEY_PREFIX)?).ok()?;
        let secret: [u8; 32] = bytes.try_into().ok()?;
        Some(Self { sealer: Sealer::new(secret), text: text.trim().to_owned() })
    }

    fn read(path: &Path) -> anyhow::Result<Self> {
        let text = read_private(path)?;
        Ok(Self::parse(&text).ok_or_else(|| no_key(&path.display().to_string()))?)
    }
}

impl KeyArgs {
    /// The given key, or the one in the data directory.
    fn key(&self, data: &Path) -> anyhow::Result<Option<Key>> {
        if let Some(path) = &self.key_file {
            return Key::read(path).map(Some);
        }
        if let Some(text) = std::env::var_os(KEY_VARIABLE) {
            let key = text.to_str().and_then(Key::parse);
            return Ok(Some(key.ok_or_else(|| no_key(KEY_VARIABLE))?));
        }
        let path = data.join(KEY_FILE);
        if path.exists() { Key::read(&path).map(Some) } else { Ok(None) }
    }
}

fn no_key(place: &str) -> Failure {
    Failure::usage(format!("{place} holds no key of an installation")).next(format!(
        "it is one line that begins with {KEY_PREFIX}, as the first control has written it into {KEY_FILE}"
    ))
}

fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| anyhow::anyhow!("the system gave no random numbers: {error}"))?;
    Ok(bytes)
}

/// Reads a file that only its owner may read.
fn read_private(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mode = file.metadata().with_context(cannot)?.permissions().mode() & 0o777;
    if mode & 0o077 != 0 {
        let message = format!("{} can be read by others (mode {mode:04o})", path.display());
        return Err(Failure::new(Kind::Failed, message).next(format!("run chmod 600 {}", path.display())).into());
    }
    let mut text = String::new();
    file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
}

/// The sealed value: the files with their purpose, so that swapping two in the database gains nothing.
#[derive(Serialize, Deserialize)]
struct SealedKeys {
    name: String,
    files: BTreeMap<String, String>,
}

/// The folder of the installation's keys, for as long as this value lives.
pub(crate) struct Installation {
    dir: PathBuf,
    is_unpacked: bool,
}

impl Installation {
    /// The folder with the keys' files.
    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// An empty folder for keys in the locked data directory.
    fn empty(data: &Path) -> anyhow::Result<Self> {
        let dir = data.join(UNPACKED_DIR);
        let cannot = || format!("cannot make {}", dir.display());
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error).with_context(cannot),
            _ => {}
        }
        DirBuilder::new().mode(0o700).recursive(true).create(dir.join(NODES_DIR)).with_context(cannot)?;
        Ok(Self { dir, is_unpacked: true })
    }

    fn put(&self, file: &str, text: &str) -> anyhow::Result<()> {
        let path = self.dir.join(file);
        let mut made = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path)?;
        made.write_all(text.as_bytes()).with_context(|| format!("cannot write {}", path.display()))
    }

    /// Makes the missing keys.
    fn complete(&self, domain: &str) -> anyhow::Result<()> {
        fs::create_dir_all(self.dir.join(NODES_DIR))
            .with_context(|| format!("cannot make {}", self.dir.join(NODES_DIR).display()))?;
        Secrets::open_or_create(&self.dir)?;
        LocalCa::open_or_create(&self.dir, domain)?;
        LocalCa::open_or_create(&self.dir.join(NODES_DIR), NODE_DOMAIN)?;
        HostKeys::open_or_create(&self.dir)?;
        UserAuthority::open_or_create(&self.dir)?;
        Ok(())
    }
}

impl Drop for Installation {
    fn drop(&mut self) {
        if self.is_unpacked
            && let Err(error) = fs::remove_dir_all(&self.dir)
        {
            warn!(%error, dir = %self.dir.display(), "keys that lay there while they were opened are still there");
        }
    }
}

/// Opens the keys of the installation: in the data directory of a local database, else from the shared database.
pub(crate) async fn open(store: &Store, data: &Path, args: &KeyArgs, domain: &str) -> anyhow::Result<Installation> {
    if !store.is_shared() {
        let keys = Installation { dir: data.to_owned(), is_unpacked: false };
        keys.complete(domain)?;
        return Ok(keys);
    }
    let mut kept = store.installation_keys().await?;
    let (key, is_new) = match args.key(data)? {
        Some(key) => (key, false),
        None if kept.is_empty() => (Key::make()?, true),
        None => return Err(missing(store, data).into()),
    };
    if kept.is_empty() {
        check_own(store, data).await?;
    }
    if is_new {
        // Written before the database has anything that only this key opens.
        write_key(&key, &data.join(KEY_FILE))?;
    }
    loop {
        let keys = Installation::empty(data)?;
        let known = unseal(&kept, &key, store, data).inspect_err(|_| {
            if is_new {
                // Another control was faster, and this key opens nothing.
                drop(fs::remove_file(data.join(KEY_FILE)));
            }
        })?;
        for (file, text) in known.values().flat_map(|group| group.files.iter()) {
            keys.put(file, text)?;
        }
        let missing: Vec<_> = GROUPS.iter().filter(|(name, _)| !known.contains_key(*name)).collect();
        if missing.is_empty() {
            check_same(data, &known)?;
            claim(store, &keys, data).await?;
            show_root(data, &known)?;
            if is_new {
                info!(
                    key = %data.join(KEY_FILE).display(),
                    "the keys of this installation are in its database, sealed with a key that was made now: give it \
                     to every further control (--key-file), and keep a copy, since nothing else opens them"
                );
            }
            return Ok(keys);
        }
        // Keys of the data directory take precedence.
        for (_, files) in &missing {
            if files.iter().all(|file| data.join(file).exists()) {
                files.iter().try_for_each(|file| keys.put(file, &fs::read_to_string(data.join(file))?))?;
            }
        }
        keys.complete(domain)?;
        let sealed = missing.iter().map(|(name, files)| seal(&key, name, keys.dir(), files));
        // Another control may have been faster; the keys in the database count.
        kept = store.keep_installation_keys(&sealed.collect::<anyhow::Result<Vec<_>>>()?).await?;
    }
}

/// Puts the keys of a data directory into the database that its data has moved to. Returns the file with the opening
/// key if it was made now.
pub(crate) async fn put_into(store: &Store, data: &Path, args: &KeyArgs) -> anyhow::Result<Option<PathBuf>> {
    let (key, made) = match args.key(data)? {
        Some(key) => (key, None),
        None => (Key::make()?, Some(data.join(KEY_FILE))),
    };
    if let Some(path) = &made {
        write_key(&key, path)?;
    }
    let there = GROUPS.iter().filter(|(_, files)| files.iter().all(|file| data.join(file).exists()));
    let sealed = there.map(|(name, files)| seal(&key, name, data, files)).collect::<anyhow::Result<Vec<_>>>()?;
    store.keep_installation_keys(&sealed).await?;
    Ok(made)
}

/// Seals all keys with a new key, which is written to this file; the former key opens nothing any more.
pub(crate) async fn change_key(store: &Store, data: &Path, args: &KeyArgs, into: &Path) -> anyhow::Result<()> {
    let kept = store.installation_keys().await?;
    let former = args.key(data)?.ok_or_else(|| missing(store, data))?;
    let known = unseal(&kept, &former, store, data)?;
    if known.is_empty() {
        let message = format!("there are no keys in {}", store.path().display());
        return Err(Failure::new(Kind::NotFound, message).next("the first `sallyport control` puts them there").into());
    }
    let new = Key::make()?;
    write_key(&new, into)?;
    let mut changes = Vec::with_capacity(known.len());
    for (name, group) in &known {
        let sealed = new.sealer.seal(Purpose::StoredSecret, group, random::<NONCE_BYTES>()?);
        let sealed = sealed.context("a key cannot be sealed")?;
        let before = kept.iter().find(|(other, _)| other == name).map(|(_, sealed)| sealed.clone());
        changes.push((name.clone(), before.unwrap_or_default(), sealed));
    }
    store.reseal_installation_keys(&changes).await?;
    Ok(())
}

/// One of an installation's two authorities.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum WhichAuthority {
    /// Clients, connectors and browsers trust its root
    Clients,
    /// Controls and edges know each other by it
    Machines,
}

impl WhichAuthority {
    /// The name of its group of files.
    fn group(self) -> &'static str {
        match self {
            Self::Clients => "site",
            Self::Machines => "nodes",
        }
    }

    fn dir(self, keys: &Path) -> PathBuf {
        match self {
            Self::Clients => keys.to_owned(),
            Self::Machines => keys.join(NODES_DIR),
        }
    }
}

/// Replaces an authority in an unused data directory. Returns the fingerprint of its new root.
///
/// # Errors
/// There is none, or its files cannot be used.
pub(crate) fn replace_authority(data: &Path, which: WhichAuthority) -> anyhow::Result<String> {
    match LocalCa::replace(&which.dir(data)) {
        Ok(made) => Ok(made.fingerprint().to_string()),
        Err(error @ CaError::Missing { .. }) => {
            let next = "controls that share a database have it there: name that with --database";
            Err(Failure::new(Kind::NotFound, error.to_string()).next(next).into())
        }
        Err(error) => Err(error.into()),
    }
}

/// Replaces an authority among the keys in the database. Returns the fingerprint of its new root.
///
/// # Errors
/// There is none, the key does not open it, or another process has changed it meanwhile. Nothing has changed then.
pub(crate) async fn replace_shared_authority(
    store: &Store,
    data: &Path,
    args: &KeyArgs,
    which: WhichAuthority,
) -> anyhow::Result<String> {
    let kept = store.installation_keys().await?;
    let former = kept.iter().find(|(name, _)| name == which.group()).ok_or_else(|| {
        let message = format!("there are no keys in {}", store.path().display());
        Failure::new(Kind::NotFound, message)
            .next("`sallyport up` has them in its data directory: leave --database out")
    })?;
    let key = args.key(data)?.ok_or_else(|| missing(store, data))?;
    let mut known = unseal(&kept, &key, store, data)?;
    let files = known.remove(which.group()).map(|group| group.files).unwrap_or_default();
    let keys = Installation::empty(data)?;
    files.iter().try_for_each(|(file, text)| keys.put(file, text))?;
    let fingerprint = replace_authority(keys.dir(), which)?;
    let names: Vec<&str> = files.keys().map(String::as_str).collect();
    let (name, sealed) = seal(&key, which.group(), keys.dir(), &names)?;
    store.reseal_installation_keys(&[(name, former.1.clone(), sealed)]).await?;
    Ok(fingerprint)
}

fn seal(key: &Key, name: &str, dir: &Path, files: &[&str]) -> anyhow::Result<(String, String)> {
    let read = |file: &&str| {
        let path = dir.join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
        anyhow::Ok(((*file).to_owned(), text))
    };
    let files = files.iter().map(read).collect::<anyhow::Result<_>>()?;
    let kept = SealedKeys { name: name.to_owned(), files };
    let sealed = key.sealer.seal(Purpose::StoredSecret, &kept, random::<NONCE_BYTES>()?);
    Ok((name.to_owned(), sealed.context("a key cannot be sealed")?))
}

fn unseal(
    kept: &[(String, String)],
    key: &Key,
    store: &Store,
    data: &Path,
) -> anyhow::Result<BTreeMap<String, SealedKeys>> {
    let mut known = BTreeMap::new();
    for (name, sealed) in kept {
        let opened: Option<SealedKeys> = key.sealer.open(Purpose::StoredSecret, sealed);
        let opened = opened.filter(|opened| opened.name == *name).ok_or_else(|| {
            let message = format!("this key does not open the keys of the installation in {}", store.path().display());
            Failure::new(Kind::Refused, message).next(where_it_is(data))
        })?;
        known.insert(name.clone(), opened);
    }
    Ok(known)
}

fn where_it_is(data: &Path) -> String {
    format!(
        "give it the key of the control that was started first, {KEY_FILE} in that one's data directory, with \
         --key-file FILE or {KEY_VARIABLE}, or put it into {}",
        data.join(KEY_FILE).display()
    )
}

fn missing(store: &Store, data: &Path) -> Failure {
    let message = format!("the keys of the installation in {} are sealed, and there is no key", store.path().display());
    Failure::new(Kind::Refused, message).next(where_it_is(data))
}

/// Refuses a database of another installation before any keys are made.
async fn check_own(store: &Store, data: &Path) -> anyhow::Result<()> {
    if store.key_check().await?.is_some() {
        // An `up` with its keys in its data directory has claimed the database.
        database::secrets(store, data).await?;
    }
    Ok(())
}

/// Refuses a data directory with the keys of another installation.
fn check_same(data: &Path, known: &BTreeMap<String, SealedKeys>) -> anyhow::Result<()> {
    let Some(kept) = known.get("token").and_then(|group| group.files.get(TOKEN_KEY_FILE)) else { return Ok(()) };
    match fs::read_to_string(data.join(TOKEN_KEY_FILE)) {
        Ok(own) if own.trim() != kept.trim() => {
            let message = format!("{} has keys of another installation than the database", data.display());
            Err(Failure::new(Kind::Refused, message).next("name another data directory with --data DIR").into())
        }
        _ => Ok(()),
    }
}

async fn claim(store: &Store, keys: &Installation, data: &Path) -> anyhow::Result<()> {
    let secrets = Secrets::open_or_create(keys.dir())?;
    if database::is_claimed(store, &secrets).await? { Ok(()) } else { Err(database::others(store, data).into()) }
}

/// Writes the root that clients trust into the data directory.
fn show_root(data: &Path, known: &BTreeMap<String, SealedKeys>) -> anyhow::Result<()> {
    let Some(root) = known.get("site").and_then(|group| group.files.get(CA_CERTIFICATE_FILE)) else { return Ok(()) };
    let path = data.join(CA_CERTIFICATE_FILE);
    if fs::read_to_string(&path).is_ok_and(|there| there == *root) {
        return Ok(());
    }
    fs::write(&path, root).with_context(|| format!("cannot write {}", path.display()))
}

fn write_key(key: &Key, path: &Path) -> anyhow::Result<()> {
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", key.text)?;
        file.sync_all()?;
        // A bare name lies in the working directory.
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty());
        File::open(dir.unwrap_or(Path::new(".")))?.sync_all()
    };
    write().with_context(|| format!("cannot write {}", path.display()))
}
