//! The pinned maps of a router.

use std::path::Path;

use libbpf_rs::MapHandle;

use crate::{
    XdpError,
    error::{asked, pinned},
};

/// A map in this folder.
pub(crate) fn map(pins: &Path, name: &str) -> Result<MapHandle, XdpError> {
    let path = pins.join(name);
    if !path.try_exists().map_err(pinned(format!("look for {}", path.display())))? {
        return Err(XdpError::NotUp);
    }
    MapHandle::from_pinned_path(&path).map_err(asked(format!("open {}", path.display())))
}
