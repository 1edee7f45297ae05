//! The store: a SQLite file in the data directory, or a PostgreSQL database that several processes share.
//!
//! Every SQL statement is in this crate, one file per noun, in one text for both databases (`db/sql.rs` lists the
//! common syntax). The tables are in `db/migrations.rs`. Changes that [`Store`] has acknowledged are on disk. There is
//! one writer at a time: with SQLite the one writing connection (write-ahead logging, `synchronous=FULL`), with
//! PostgreSQL the holder of a lock in the database, across processes. Readers see committed data and never wait. A
//! database that is damaged, of a newer version or of another program is refused with an error and never changed.
//!
//! The store reads no clock and creates no secrets: times (seconds since 1970), ids, hashes and random numbers are
//! arguments.
//!
//! The rooms from bottom to top, each of which uses only earlier ones: `db`, `accounts`, `identity`, `cluster`,
//! `landings`, `names`, `networks`, `sockets`, `tidy`.

mod accounts;
mod cluster;
mod db;
mod identity;
mod landings;
mod names;
mod networks;
mod sockets;
mod tidy;

pub use accounts::{
    account::{
        AccountDeletion, Admission, MAX_GUEST_SOCKETS, NewAccount, SetupRequirement, SignUpRequirement, guest_account,
    },
    account_access::{AccountAccess, MAX_RESETS_PER_ACCOUNT, NewReset, ResetMaker},
    invitations::{Invitation, InviteOutcome, MAX_INVITATIONS_PER_ORGANISATION, OpenInvitation, WithdrawOutcome},
    organisations::{
        MAX_MEMBERS_PER_ORGANISATION, MAX_ORGANISATIONS_PER_ACCOUNT, Member, MemberChangeOutcome, Membership,
    },
    second_factor::{CodeOwner, RECOVERY_CODES},
    sessions::{
        MAX_SESSIONS_PER_ACCOUNT, NewSession, Rotation, SecretSession, SessionClient, SessionId, StoredSession,
    },
    setup::StoredSetupToken,
    ssh_keys::{MAX_SSH_KEYS_PER_ACCOUNT, SshKey},
    tokens::{MAX_TOKENS_PER_ACCOUNT, NewToken, StoredToken},
};
pub use cluster::{
    anycast::{AnycastKind, StoredAnycast, StoredAnycastItem},
    balancers::StoredBalancer,
    controls::{HolderId, MAX_CONTROLS, StoredControl},
    edges::{
        EdgeTokenId, JoinRefusal, JoiningEdge, MAX_EDGE_TOKENS, MAX_EDGES, NewEdgeToken, StoredEdge, StoredEdgeToken,
        TokenUser,
    },
    egress::{StoredEgress, StoredEgressAddress},
    leaders::StoredLeader,
};
pub use db::{
    Position, SecretHash, Store,
    error::StoreError,
    idempotency::{Creation, IdempotencyKey, MAX_KEYS_PER_ACCOUNT, REMEMBER_KEYS_SECONDS, Reservation, StoredAnswer},
    lock::{DataDirLock, LockError},
    open::DATABASE_FILE,
    postgres::PostgresAddress,
    transfer::{TransferError, TransferredTable},
};
pub use identity::{
    authorities::{AuthorityKind, IssuedCertificate, MAX_LISTED_CERTIFICATES, StoredAuthority},
    device_logins::{DeviceAnswer, DeviceLogin, MAX_DEVICE_LOGINS, MAX_DEVICE_LOGINS_OF_ORGANISATION, NewDeviceLogin},
    person_sessions::{MAX_SESSIONS_PER_ORGANISATION, MAX_SESSIONS_PER_PERSON},
    persons::{LocalPerson, MAX_LINKS_PER_PERSON, MAX_PERSONS_PER_ORGANISATION, NewPersonLink, PersonSecrets},
    provider_sessions::{DueCheck, LogoutSubject, MAX_CLAIMED_CHECKS, NewProviderSession},
    providers::{MAX_PROVIDERS_PER_ORGANISATION, StoredProvider},
    service_tokens::{MAX_SERVICE_TOKENS, NewServiceToken, StoredServiceToken},
    used_once::MAX_USED_ONCE_PER_ORGANISATION,
};
pub use landings::{
    addresses::{MAX_OPT_OUTS, MAX_PING_TARGETS},
    measurements::{MAX_MEASUREMENTS, MEASUREMENT_LOST_SECONDS, StoredMeasurement},
};
pub use names::{
    acme::MAX_CHALLENGES,
    certificates::{
        CertificateCounts, CertificateLease, CertificateSource, IssuedChain, MAX_CERTIFICATES, PendingOrder,
        StoredCertificate,
    },
    domains::{DomainCheck, MAX_DOMAINS_PER_ORGANISATION, StoredDomain},
    wanted::{WantedCertificate, WantedChanges},
    zones::{MAX_RECORDS_PER_ZONE, MAX_ZONES_PER_ORGANISATION, StoredZone, StoredZoneRecord},
};
pub use networks::{
    machines::{MAX_MACHINES_PER_NETWORK, NewMachine, StoredMachine},
    network::{MAX_NETWORKS_PER_ORGANISATION, NetworkSummary, NewNetwork, StoredNetwork},
};
pub use sockets::{
    labels::MAX_LABEL_SELECTORS,
    origins::DirectOriginChange,
    policies::{Attachment, MAX_POLICIES_PER_ORGANISATION, NewPolicy, Policy, PolicyChange},
    ports::PortRequest,
    socket::{MAX_SOCKETS_PER_ACCOUNT, Maker, NewSocket, SocketChange},
    socket_names::NameConflict,
    tunnels::{NewTunnel, TunnelChange},
};
