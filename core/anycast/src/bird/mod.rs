//! BIRD: its configuration for an edge, and what it says on its control socket.

mod batch;
mod configuration;
mod part;
mod protocols;
mod reply;
mod routes;
mod status;
mod version;

pub use batch::Batcher;
pub use configuration::{
    Configuration, ConfigurationError, EXTRA_PREPEND, MAX_CONFIGURATION_BYTES, configuration, peer_of, protocol_of,
};
pub use part::{EdgePart, MAX_RPKI_SERVERS, PartPrefix, RpkiServer, RpkiServerError, router_id_of, site_number};
pub use protocols::{Channel, MAX_PROTOCOLS, Protocol, protocols};
pub use reply::{
    ConfigureAnswer, FileError, MAX_LINE_BYTES, MAX_REPLY_BYTES, Reply, ReplyError, ReplyLine, ReplyReader,
};
pub use routes::{MAX_PATH_LENGTH, MAX_ROUTES, Route, routes};
pub use status::{Status, status};
pub use version::{Feature, Version, VersionError};
