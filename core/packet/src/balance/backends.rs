//! The table of backends that share an address.

use std::net::IpAddr;

use sallyport_balance::{
    HashKey, Weight,
    maglev::{MAX_ORIGINS, Maglev},
};

use crate::parse::{Flow, flow_hash};

/// A backend: a server that takes packets of the shared address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backend {
    /// Address of the server, which is its name in the table.
    pub address: IpAddr,
    /// Its share. 0 is none.
    pub weight: Weight,
}

/// The table: the flow's hash chooses a slot, and the slot has a backend. Nearly all flows keep their backend when one
/// comes or goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backends {
    backends: Vec<Backend>,
    cells: Vec<u32>,
    seed: u32,
}

/// Backends that make no table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BackendError {
    /// Too many.
    #[error("a table has at most {MAX_ORIGINS} backends, not {0}")]
    TooMany(usize),
    /// Two have one address.
    #[error("two backends have the address {0}")]
    Twice(IpAddr),
}

impl Backends {
    /// Builds the table. The key decides which slots a backend has, the seed which slot a flow has. Both must be the
    /// same wherever flows are to have the same backend.
    ///
    /// # Errors
    /// There are too many backends, or two have the same address.
    pub fn new(key: &HashKey, seed: u32, backends: &[Backend]) -> Result<Self, BackendError> {
        let named: Vec<_> = backends
            .iter()
            .map(|backend| match backend.address {
                IpAddr::V4(address) => (HashKey::origin_id(&address.octets()), backend.weight),
                IpAddr::V6(address) => (HashKey::origin_id(&address.octets()), backend.weight),
            })
            .collect();
        for (index, backend) in backends.iter().enumerate() {
            if backends[..index].iter().any(|other| other.address == backend.address) {
                return Err(BackendError::Twice(backend.address));
            }
        }
        let maglev = Maglev::new(key, &named).map_err(|error| BackendError::TooMany(error.count))?;
        let count = u32::try_from(maglev.slot_count()).unwrap_or(0);
        let number = |id| named.iter().position(|(other, _)| other == id).and_then(|at| u32::try_from(at + 1).ok());
        let slots = maglev.owners().map(|id| number(id).unwrap_or(0));
        let cells = std::iter::once(count).chain(slots).collect();
        Ok(Self { backends: backends.to_vec(), cells, seed })
    }

    /// The backend of a flow; `None` if the table is empty.
    #[must_use]
    pub fn backend(&self, flow: &Flow) -> Option<&Backend> {
        let (count, slots) = self.cells.split_first()?;
        let slot = flow_hash(flow, self.seed).checked_rem(*count)?;
        let number = slots.get(slot as usize)?.checked_sub(1)?;
        self.backends.get(number as usize)
    }

    /// The cells of `backend_slots`.
    #[must_use]
    pub fn cells(&self) -> &[u32] {
        &self.cells
    }
}
