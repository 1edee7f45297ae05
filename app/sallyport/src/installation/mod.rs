//! An installation: its data directory, its database and its keys.
//! Uses `failure`.

pub(crate) mod database;
mod keys;

use std::path::PathBuf;

pub(crate) use self::keys::{
    Installation, KEY_FILE, KeyArgs, NODES_DIR, WhichAuthority, change_key, open, put_into, replace_authority,
    replace_shared_authority,
};

/// The default data directory.
pub(crate) fn default_data_dir() -> Option<PathBuf> {
    if rustix::process::geteuid().is_root() {
        return Some("/var/lib/sallyport".into());
    }
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute("XDG_DATA_HOME")
        .or_else(|| absolute("HOME").map(|home| home.join(".local/share")))
        .map(|base| base.join("sallyport"))
}
