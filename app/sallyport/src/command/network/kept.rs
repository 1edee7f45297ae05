//! The machine of this user in a network, as control has made it: kept in the state directory, for its owner alone.

use std::{
    fs,
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use sallyport_api::{ConnectTo, CreatedMachine, Network, Secret};
use sallyport_client::ApiAddress;
use sallyport_connector::network::JoinNetwork;
use sallyport_model::MachineId;
use sallyport_network::name::Name;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    failure::{Failure, Kind},
    machine::server_note::state_dir,
};

/// The longest file, in bytes.
const MAX_FILE_BYTES: u64 = 65_536;

/// A machine with its credential: of the API's answer, the part that joining needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct KeptMachine {
    /// The machine.
    pub(super) id: MachineId,
    /// The organisation of its network: another one may have a network of the same name.
    pub(super) organisation: Uuid,
    /// The credential.
    pub(super) credential: Secret,
    /// The address that the machine dials.
    pub(super) edge: ConnectTo,
}

impl KeptMachine {
    /// Reads the machine of this user in a network, if there is one.
    ///
    /// # Errors
    /// Its file cannot be read, or others can read it.
    pub(super) fn read(api: &ApiAddress, network: &Name) -> Result<Option<Self>, Failure> {
        let path = path(api, network)?;
        match Self::read_from(&path) {
            Ok(kept) => Ok(Some(kept)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                let text = format!("the file of the machine, {}, cannot be used: {error}", path.display());
                Err(Failure::new(Kind::Failed, text)
                    .next("repair the file, or remove it and the machine, and join again"))
            }
        }
    }

    /// Keeps a new machine.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn keep(api: &ApiAddress, network: &Name, created: CreatedMachine) -> Result<Self, Failure> {
        let id = created.details.id.to_string().parse::<MachineId>();
        let id = id.map_err(|_| Failure::new(Kind::Failed, "the API gives a machine without an id"))?;
        // Edges beside the one that every machine may dial are no matter of networks.
        let edge = ConnectTo { edges: Vec::new(), ..created.edge };
        let kept = Self { id, organisation: created.network.organisation, credential: created.credential, edge };
        kept.write(api, network).map_err(|failure| {
            let text = format!("the machine was added, and {failure}");
            Failure::new(Kind::Failed, text).next(format!("remove it with `sallyport network machine rm {network}`"))
        })?;
        Ok(kept)
    }

    /// Writes the file.
    ///
    /// # Errors
    /// The file cannot be written.
    pub(super) fn write(&self, api: &ApiAddress, network: &Name) -> Result<(), Failure> {
        let path = path(api, network)?;
        self.write_to(&path).map_err(|error| {
            Failure::new(Kind::Failed, format!("its file {} cannot be written: {error}", path.display()))
        })
    }

    /// Refuses the network of another organisation, whose name and API are the same.
    ///
    /// # Errors
    /// The machine is in the network of another organisation.
    pub(super) fn require(&self, api: &ApiAddress, found: &Network, network: &Name) -> Result<(), Failure> {
        let organisation = self.organisation;
        if organisation == found.organisation {
            return Ok(());
        }
        let text = format!("this machine is in the network {network} of another organisation, {organisation}");
        let file = path(api, network)?;
        Err(Failure::new(Kind::Refused, text).next(format!(
            "add --organisation {organisation}, or remove the machine there and then {}",
            file.display()
        )))
    }

    /// Removes the file of a machine that was removed.
    ///
    /// # Errors
    /// There is no state directory.
    pub(super) fn forget(api: &ApiAddress, network: &Name) -> Result<(), Failure> {
        // A file that stays is found to be stale at the next start.
        drop(fs::remove_file(path(api, network)?));
        Ok(())
    }

    /// Writes a draft for the owner alone, which takes the place of the file at once.
    fn write_to(&self, path: &Path) -> io::Result<()> {
        let dir = path.parent().unwrap_or(path);
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        let draft = path.with_extension(format!("{}.draft", std::process::id()));
        drop(fs::remove_file(&draft));
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft)?;
        file.write_all(&serde_json::to_vec_pretty(self)?)?;
        file.sync_all()?;
        fs::rename(&draft, path)
    }

    fn read_from(path: &Path) -> io::Result<Self> {
        let known = fs::metadata(path)?;
        let mode = known.permissions().mode();
        if mode & 0o077 != 0 {
            return Err(io::Error::other(format!(
                "others may read it (mode {:o}): `chmod 600` closes it",
                mode & 0o777
            )));
        }
        if known.len() > MAX_FILE_BYTES {
            return Err(io::Error::other(format!("it has more than {MAX_FILE_BYTES} bytes")));
        }
        serde_json::from_slice(&fs::read(path)?).map_err(io::Error::other)
    }

    /// The first frame of the machine.
    pub(super) fn question(&self) -> JoinNetwork {
        JoinNetwork { machine: self.id, credential: self.credential.expose().to_owned() }
    }
}

/// The file of a network of this API.
fn path(api: &ApiAddress, network: &Name) -> Result<PathBuf, Failure> {
    let dir = state_dir().ok_or_else(|| Failure::usage("there is no home directory: set SALLYPORT_STATE_DIR"))?;
    Ok(dir.join("networks").join(format!("{network}@{}_{}.json", api.host(), api.port())))
}
