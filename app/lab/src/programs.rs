//! The external programs of a laboratory: where they are, and how to install them.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

use sallyport_cli::program;

use crate::{error::LabError, plan::Programs, topology::Database};

/// The folder of Debian's PostgreSQL servers, one folder for each version.
const POSTGRES_FOLDERS: &str = "/usr/lib/postgresql";
/// The oldest nats-server with the JetStream features of the bus.
const OLDEST_NATS: [u32; 2] = [2, 10];
const GET_SALLYPORT: &str = "install it beside sallyport-lab or where PATH finds it, or name it with --program FILE";
const GET_BIRD: &str = "install BIRD 2 (`apt-get install bird2`); its service need not run";
const GET_NATS: &str = "install nats-server 2.10 or newer from https://nats.io/download, or by \
    `go install github.com/nats-io/nats-server/v2@latest` (Debian 12's package is older)";

/// Finds the programs of a laboratory. `other` runs controls, edges and connectors in place of the installed
/// `sallyport`.
///
/// # Errors
/// A program is missing; the error has the way to install it.
pub(crate) fn find(database: Database, other: Option<&Path>) -> Result<Programs, LabError> {
    let path = env::var_os("PATH").unwrap_or_default();
    let on_path = |name: &str| search(env::split_paths(&path), name);
    let missing = |program, how| LabError::Missing { program, how };
    for (program, how) in [
        ("ip", "install iproute2"),
        ("setsid", "install util-linux"),
        ("unshare", "install util-linux"),
        ("setpriv", "install util-linux"),
    ] {
        on_path(program).ok_or_else(|| missing(program, how))?;
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(missing("/dev/net/tun", "load the kernel's module tun: modprobe tun"));
    }
    let nats_server = on_path("nats-server").or_else(|| {
        // Where `go install` and Sallyport's own tests put it.
        let home = env::var_os("HOME").map(PathBuf::from)?;
        let tools = env::var_os("SALLYPORT_TOOLS").map_or_else(|| home.join(".cache/sallyport-tools"), PathBuf::from);
        let newest = newest(&tools, |name| name.starts_with("nats-server-")).map(|folder| folder.join("nats-server"));
        newest
            .filter(|file| file.is_file())
            .or_else(|| Some(home.join("go/bin/nats-server")).filter(|file| file.is_file()))
    });
    let nats_server = nats_server.ok_or_else(|| missing("nats-server", GET_NATS))?;
    if version_of(&nats_server).is_some_and(|version| version < OLDEST_NATS) {
        return Err(missing("nats-server 2.10 or newer", GET_NATS));
    }
    let postgres = match database {
        Database::Sqlite => None,
        Database::Postgres => {
            let debian = newest(Path::new(POSTGRES_FOLDERS), |name| name.parse::<u32>().is_ok());
            let debian = debian.map(|folder| folder.join("bin")).filter(|folder| folder.join("postgres").is_file());
            let elsewhere = || fs::canonicalize(on_path("postgres")?).ok()?.parent().map(Path::to_path_buf);
            let folder = debian.or_else(elsewhere).filter(|folder| folder.join("initdb").is_file());
            let folder = folder.ok_or_else(|| {
                missing(
                    "PostgreSQL",
                    "install postgresql (13 or newer), or leave it out with --no-postgres --controls 1",
                )
            })?;
            if !has_user("postgres") {
                return Err(missing(
                    "the user postgres",
                    "PostgreSQL does not run as root: `useradd --system postgres`",
                ));
            }
            Some(folder)
        }
    };
    let lab = env::current_exe().map_err(LabError::io("find this program"))?;
    let sallyport = match other {
        Some(other) => fs::canonicalize(other).map_err(LabError::io(format!("use {}", other.display())))?,
        None => program::find("sallyport").ok_or_else(|| missing("sallyport", GET_SALLYPORT))?,
    };
    Ok(Programs { lab, sallyport, nats_server, postgres })
}

/// Checks that the programs of an anycast laboratory are there besides.
///
/// # Errors
/// A program is missing; the error has the way to install it.
pub(crate) fn find_for_anycast() -> Result<(), LabError> {
    let path = env::var_os("PATH").unwrap_or_default();
    for (program, how) in [("bird", GET_BIRD), ("birdc", GET_BIRD), ("nft", "install nftables")] {
        search(env::split_paths(&path), program).ok_or(LabError::Missing { program, how })?;
    }
    Ok(())
}

/// The version that `nats-server -v` prints; `None` if it cannot be read.
fn version_of(program: &Path) -> Option<[u32; 2]> {
    let output = Command::new(program).arg("-v").output().ok()?.stdout;
    version_in(&String::from_utf8_lossy(&output))
}

/// The first two numbers of `nats-server: v2.10.7`.
fn version_in(text: &str) -> Option<[u32; 2]> {
    let mut numbers = text.trim().rsplit_once('v')?.1.split('.').map(str::parse);
    Some([numbers.next()?.ok()?, numbers.next()?.ok()?])
}

fn search(mut folders: impl Iterator<Item = PathBuf>, name: &str) -> Option<PathBuf> {
    folders.find_map(|folder| Some(folder.join(name)).filter(|file| file.is_file()))
}

/// The folder with the highest version in its name.
fn newest(parent: &Path, is_one: impl Fn(&str) -> bool) -> Option<PathBuf> {
    let names = fs::read_dir(parent).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let version = |name: &str| -> Vec<u64> {
        name.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse().ok()).collect()
    };
    names.filter(|name| is_one(name)).max_by_key(|name| version(name)).map(|name| parent.join(name))
}

fn has_user(name: &str) -> bool {
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    users.lines().any(|line| line.split(':').next() == Some(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_server_is_detected_by_its_version() {
        assert_eq!(version_in("nats-server: v2.9.10\n"), Some([2, 9]));
        assert!(version_in("nats-server: v2.9.10") < Some(OLDEST_NATS));
        assert_eq!(version_in("nats-server: v2.15.2\n"), Some([2, 15]));
        assert_eq!((version_in(""), version_in("nats-server: v2"), version_in("version unknown")), (None, None, None));
    }

    #[test]
    fn the_newest_version_is_taken_and_not_the_last_by_its_letters() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["9", "15", "junk", "nats-server-v2.9.10", "nats-server-v2.15.2"] {
            fs::create_dir(dir.path().join(name)).unwrap();
        }
        let numbers = newest(dir.path(), |name| name.parse::<u32>().is_ok()).unwrap();
        assert!(numbers.ends_with("15"), "{numbers:?}");
        let bus = newest(dir.path(), |name| name.starts_with("nats-server-")).unwrap();
        assert!(bus.ends_with("nats-server-v2.15.2"), "{bus:?}");
        assert_eq!(newest(&dir.path().join("no"), |_| true), None);
        assert!(has_user("root") && !has_user("nobody-of-this-name"));
    }
}
