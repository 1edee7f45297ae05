//! The certificate stores of browsers: databases of NSS, one for Chromium and its kin, one in each profile of Firefox.
//!
//! They belong to a person and not to the machine, and are changed by NSS's own program `certutil`, run as that person.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use sallyport_pki::{Fingerprint, RootInfo};
use serde::Serialize;

use crate::store::{MAX_REPEATED_BYTES, stem};

/// What has `certutil`, as Debian calls it; Fedora and Arch say `nss-tools` and `nss`.
pub const CERTUTIL_PACKAGE: &str = "libnss3-tools";
/// How many profiles of Firefox are looked at in one folder.
const MAX_PROFILES: usize = 64;
/// Where Chromium and its kin keep theirs, all of them the same one, except where they are packed as a snap.
const CHROMIUM_STORES: &[&str] = &[".pki/nssdb", "snap/chromium/current/.pki/nssdb"];
/// Where profiles of Firefox are, as Debian, snap, flatpak and newer versions have it.
const FIREFOX_FOLDERS: &[&str] = &[
    ".mozilla/firefox",
    ".config/mozilla/firefox",
    "snap/firefox/common/.mozilla/firefox",
    ".var/app/org.mozilla.firefox/.mozilla/firefox",
];
/// Programs that read the first of [`CHROMIUM_STORES`].
const CHROMIUM_PROGRAMS: &[&str] = &[
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "brave-browser",
    "microsoft-edge",
    "vivaldi-stable",
];

/// Whose stores a browser reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Browser {
    /// Chromium, Chrome and others made of it.
    Chromium,
    /// Firefox.
    Firefox,
}

impl Browser {
    /// What people call it.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Chromium => "Chromium",
            Self::Firefox => "Firefox",
        }
    }
}

/// One certificate store of a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrowserStore {
    /// Which browser reads it.
    pub browser: Browser,
    /// The folder of the database.
    pub dir: PathBuf,
}

/// What became of one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BrowserChange {
    /// Which one.
    #[serde(flatten)]
    pub store: BrowserStore,
    /// Whether it was changed: else it was as wanted before.
    pub changed: bool,
    /// Why it could not be changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// There is no `certutil`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "browsers keep certificates of their own, and the program that changes these is missing: install {CERTUTIL_PACKAGE}"
)]
pub struct NoCertutil;

/// Whose browsers are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// Their home directory.
    pub home: PathBuf,
    /// Their user and group, where this process is root and acts for somebody else.
    pub ids: Option<(u32, u32)>,
}

/// The certificate stores of a person's browsers.
#[derive(Debug)]
pub struct BrowserStores {
    person: Person,
    /// Where programs are looked for.
    path: Vec<PathBuf>,
}

impl BrowserStores {
    /// Those of this person; programs are looked for in these folders.
    #[must_use]
    pub fn of(person: Person, path: Vec<PathBuf>) -> Self {
        Self { person, path }
    }

    /// Every store that there is, and the one of Chromium where that is installed and has made none yet.
    #[must_use]
    pub fn all(&self) -> Vec<BrowserStore> {
        let home = &self.person.home;
        let first = home.join(CHROMIUM_STORES[0]);
        let mut found = Vec::new();
        for dir in CHROMIUM_STORES.iter().map(|dir| home.join(dir)) {
            if dir.join("cert9.db").is_file() || (dir == first && self.has_chromium()) {
                found.push(BrowserStore { browser: Browser::Chromium, dir });
            }
        }
        for folder in FIREFOX_FOLDERS {
            let profiles = fs::read_dir(home.join(folder)).into_iter().flatten().take(MAX_PROFILES).flatten();
            let mut profiles: Vec<_> = profiles.map(|entry| entry.path()).collect();
            profiles.sort();
            let used = profiles.into_iter().filter(|dir| dir.join("cert9.db").is_file());
            found.extend(used.map(|dir| BrowserStore { browser: Browser::Firefox, dir }));
        }
        found
    }

    fn has_chromium(&self) -> bool {
        CHROMIUM_PROGRAMS.iter().any(|name| self.program(name).is_some())
    }

    fn program(&self, name: &str) -> Option<PathBuf> {
        self.path.iter().map(|dir| dir.join(name)).find(|path| path.is_file())
    }

    fn certutil(&self) -> Result<PathBuf, NoCertutil> {
        self.program("certutil").ok_or(NoCertutil)
    }

    /// Whether these stores can be changed; none need be where there are none.
    ///
    /// # Errors
    /// There are some, and no `certutil`.
    pub fn check(&self) -> Result<(), NoCertutil> {
        if self.all().is_empty() { Ok(()) } else { self.certutil().map(drop) }
    }

    /// Puts the root into each store. Doing it again is no error.
    ///
    /// # Errors
    /// There is no `certutil`; what went wrong with one store stands in its [`BrowserChange`].
    pub fn install(&self, root: &RootInfo) -> Result<Vec<BrowserChange>, NoCertutil> {
        self.change(|certutil, store| {
            let name = stem(root.fingerprint);
            if !store.dir.join("cert9.db").is_file() {
                self.run(Path::new("mkdir"), &["-p".into(), "-m".into(), "700".into(), store.dir.clone().into()], "")?;
                self.run(certutil, &["-N".into(), "-d".into(), database(store), "--empty-password".into()], "")?;
            } else if self.holds(certutil, store, &name) {
                return Ok(false);
            }
            // `C`: it vouches for servers, and for nothing else.
            let add = ["-A", "-a", "-t", "C,,", "-f", "/dev/null", "-n", &name, "-d"];
            let mut arguments: Vec<_> = add.map(Into::into).to_vec();
            arguments.push(database(store));
            let added = self.run(certutil, &arguments, &root.to_pem());
            if added.is_err() {
                // A store with a password takes the certificate before it refuses to believe it.
                let mut undo: Vec<_> = ["-D", "-f", "/dev/null", "-n", &name, "-d"].map(Into::into).to_vec();
                undo.push(database(store));
                drop(self.run(certutil, &undo, ""));
            }
            added.map(|()| true)
        })
    }

    /// Takes the root with this fingerprint out of each store, where [`BrowserStores::install`] put it there.
    ///
    /// # Errors
    /// As of [`BrowserStores::install`].
    pub fn remove(&self, fingerprint: Fingerprint) -> Result<Vec<BrowserChange>, NoCertutil> {
        self.change(|certutil, store| {
            let name = stem(fingerprint);
            if !store.dir.join("cert9.db").is_file() || !self.holds(certutil, store, &name) {
                return Ok(false);
            }
            let mut arguments: Vec<_> = ["-D", "-f", "/dev/null", "-n", &name, "-d"].map(Into::into).to_vec();
            arguments.push(database(store));
            self.run(certutil, &arguments, "").map(|()| true)
        })
    }

    /// Those stores that lack the root with this fingerprint.
    ///
    /// # Errors
    /// There are stores, and no `certutil`.
    pub fn lacking(&self, fingerprint: Fingerprint) -> Result<Vec<BrowserStore>, NoCertutil> {
        let mut all = self.all();
        if all.is_empty() {
            return Ok(all);
        }
        let certutil = self.certutil()?;
        all.retain(|store| !self.holds(&certutil, store, &stem(fingerprint)));
        Ok(all)
    }

    fn change(
        &self,
        change: impl Fn(&Path, &BrowserStore) -> Result<bool, String>,
    ) -> Result<Vec<BrowserChange>, NoCertutil> {
        let all = self.all();
        if all.is_empty() {
            return Ok(Vec::new());
        }
        let certutil = self.certutil()?;
        let changes = all.into_iter().map(|store| match change(&certutil, &store) {
            Ok(changed) => BrowserChange { store, changed, error: None },
            Err(error) => BrowserChange { store, changed: false, error: Some(error) },
        });
        Ok(changes.collect())
    }

    fn holds(&self, certutil: &Path, store: &BrowserStore, name: &str) -> bool {
        let arguments = ["-L".into(), "-n".into(), name.into(), "-d".into(), database(store)];
        self.run(certutil, &arguments, "").is_ok()
    }

    /// Runs a program as the person, with nothing of our environment and no terminal to ask at.
    fn run(&self, program: &Path, arguments: &[std::ffi::OsString], input: &str) -> Result<(), String> {
        let mut command = Command::new(program);
        command.args(arguments).env_clear().env("HOME", &self.person.home).env("LC_ALL", "C").current_dir("/");
        command.env("PATH", std::env::join_paths(&self.path).unwrap_or_else(|_| "/usr/bin:/bin".into()));
        if let Some((user, group)) = self.person.ids {
            command.uid(user).gid(group);
        }
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut ran = || -> io::Result<std::process::Output> {
            let mut child = command.spawn()?;
            // Dropped at once: the program reads up to the end. One that reads nothing says itself what is wrong.
            let written = child.stdin.take().map(|mut stdin| stdin.write_all(input.as_bytes()));
            let output = child.wait_with_output()?;
            if output.status.success() { written.transpose().map(|_| output) } else { Ok(output) }
        };
        let output = ran().map_err(|error| format!("{}: {error}", program.display()))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        if said.contains("SEC_ERROR_BAD_PASSWORD") {
            return Err("it has a password".to_owned());
        }
        let said = said.trim();
        let end = said.floor_char_boundary(MAX_REPEATED_BYTES);
        Err(if said.is_empty() { output.status.to_string() } else { said[..end].replace('\n', "; ") })
    }
}

fn database(store: &BrowserStore) -> std::ffi::OsString {
    let mut name = std::ffi::OsString::from("sql:");
    name.push(&store.dir);
    name
}
