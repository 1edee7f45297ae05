//! The ssh keys of an installation, which its edges use.

use std::path::Path;

use anyhow::Context as _;
use sallyport_api::{EdgeSsh, Secret};
use sallyport_control::SshInfo;
use sallyport_ssh::{HostKeys, UserAuthority};

use super::ControlArgs;
use crate::roles::ssh;

/// The ssh keys for edges and the API.
pub(super) struct SshKeys {
    host: HostKeys,
    pub(super) authority: UserAuthority,
}

impl SshKeys {
    pub(super) fn open(dir: &Path) -> anyhow::Result<Self> {
        let host = HostKeys::open_or_create(dir).context("the host keys for ssh cannot be used")?;
        let authority = UserAuthority::open_or_create(dir).context("the authority for ssh keys cannot be used")?;
        Ok(Self { host, authority })
    }

    /// What the API shows of it.
    pub(super) fn info(&self, args: &ControlArgs) -> SshInfo {
        let (host, port) = (ssh::host(&args.domain), args.ssh_port.unwrap_or(args.public_port));
        SshInfo { known_hosts: self.host.known_hosts_lines(&host, port), host, port }
    }

    /// The ssh configuration for edges: they can verify certificates, but not sign them.
    pub(super) fn for_edges(&self) -> anyhow::Result<EdgeSsh> {
        let host_keys = self.host.to_openssh()?.into_iter().map(Secret::from).collect();
        Ok(EdgeSsh { host_keys, authority: self.authority.public_key().to_openssh()? })
    }
}
