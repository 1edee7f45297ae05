//! Lookups at the name service: TXT, CAA, CNAME and addresses.
//!
//! The servers are those of the system, or given ones. Answers are not cached: who has just set a record wants to see it.

mod exit;

use std::{
    net::{IpAddr, SocketAddr},
    time::Duration,
};

use hickory_resolver::{
    Resolver as HickoryResolver, TokioResolver,
    config::{ConnectionConfig, NameServerConfig, ResolveHosts, ResolverConfig},
    net::{NetError, runtime::TokioRuntimeProvider},
    proto::rr::{Name, RData, RecordType, rdata},
};
use sallyport_domains::CaaRecord;

pub use exit::ExitResolver;

/// Time limit of one lookup.
pub const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);
/// Time limit of one try.
const TRY_TIMEOUT: Duration = Duration::from_secs(3);

/// Makes lookups. Clones share the connections.
#[derive(Clone, Debug)]
pub struct Resolver {
    inner: TokioResolver,
    servers: Vec<SocketAddr>,
}

/// Reason why a lookup found nothing out.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// The name service did not answer, or reported a failure.
    #[error("the name service did not answer for {name} ({reason})")]
    Unanswered {
        /// The name.
        name: String,
        /// The failure.
        reason: String,
    },
    /// The text is not a name that can be looked up.
    #[error("{0} cannot be looked up")]
    Name(String),
    /// The system's configuration of the name service cannot be used.
    #[error(
        "the name service of this machine cannot be used ({0}): see /etc/resolv.conf, or name servers by --resolver"
    )]
    System(String),
}

impl Resolver {
    /// Asks these servers, or those of the system if there are none.
    ///
    /// # Errors
    /// The system's configuration cannot be read.
    pub fn new(servers: &[SocketAddr]) -> Result<Self, LookupError> {
        let system = |error: NetError| LookupError::System(error.to_string());
        let mut builder = if servers.is_empty() {
            HickoryResolver::builder_tokio().map_err(system)?
        } else {
            let servers = servers.iter().map(|server| server_config(*server));
            let config = ResolverConfig::from_parts(None, Vec::new(), servers.collect());
            HickoryResolver::builder_with_config(config, TokioRuntimeProvider::default())
        };
        let options = builder.options_mut();
        (options.timeout, options.attempts, options.cache_size) = (TRY_TIMEOUT, 2, 0);
        options.use_hosts_file = ResolveHosts::Never;
        Ok(Self { inner: builder.build().map_err(system)?, servers: servers.to_vec() })
    }

    /// The servers as text: their addresses, or `the system's name service`.
    #[must_use]
    pub fn shown(&self) -> String {
        if self.servers.is_empty() {
            return "the system's name service".to_owned();
        }
        self.servers.iter().map(SocketAddr::to_string).collect::<Vec<_>>().join(", ")
    }

    /// The texts of the TXT records of a name; none if there is no such record.
    ///
    /// # Errors
    /// The name service does not answer.
    pub async fn txt(&self, name: &str) -> Result<Vec<String>, LookupError> {
        let text = |data: &RData| match data {
            RData::TXT(rdata::TXT { txt_data, .. }) => Some(String::from_utf8_lossy(&txt_data.concat()).into_owned()),
            _ => None,
        };
        self.lookup(name, RecordType::TXT, text).await
    }

    /// The alias of a name, if it is one.
    ///
    /// # Errors
    /// The name service does not answer.
    pub async fn cname(&self, name: &str) -> Result<Option<String>, LookupError> {
        let target = |data: &RData| match data {
            RData::CNAME(target) => Some(target.0.to_ascii().trim_end_matches('.').to_ascii_lowercase()),
            _ => None,
        };
        Ok(self.lookup(name, RecordType::CNAME, target).await?.pop())
    }

    /// The addresses of a name; none if it has none.
    ///
    /// # Errors
    /// The name service does not answer.
    pub async fn addresses(&self, name: &str) -> Result<Vec<IpAddr>, LookupError> {
        let address = |data: &RData| match data {
            RData::A(address) => Some(IpAddr::V4(address.0)),
            RData::AAAA(address) => Some(IpAddr::V6(address.0)),
            _ => None,
        };
        let mut found = self.lookup(name, RecordType::A, address).await?;
        found.extend(self.lookup(name, RecordType::AAAA, address).await?);
        Ok(found)
    }

    /// The CAA records that apply to a name, with the name that has them: its own, or those of the nearest parent with
    /// any.
    ///
    //= RFC 8659 section 3
    //# climbing the DNS name tree from the specified label up to, but not including, the DNS root '.' until a CAA RRset
    //# is found
    ///
    /// # Errors
    /// The name service does not answer.
    pub async fn caa(&self, name: &str) -> Result<Option<(String, Vec<CaaRecord>)>, LookupError> {
        let record = |data: &RData| match data {
            RData::CAA(rdata::CAA { issuer_critical, tag, value, .. }) => Some(CaaRecord {
                is_critical: *issuer_critical,
                tag: tag.clone(),
                value: String::from_utf8_lossy(value).into_owned(),
            }),
            _ => None,
        };
        let mut rest = name.trim_start_matches("*.");
        loop {
            let found = self.lookup(rest, RecordType::CAA, record).await?;
            if !found.is_empty() {
                return Ok(Some((rest.to_owned(), found)));
            }
            match rest.split_once('.') {
                Some((_, parent)) => rest = parent,
                None => return Ok(None),
            }
        }
    }

    async fn lookup<T>(
        &self,
        name: &str,
        kind: RecordType,
        pick: impl Fn(&RData) -> Option<T>,
    ) -> Result<Vec<T>, LookupError> {
        let mut asked = Name::from_ascii(name).map_err(|_| LookupError::Name(name.to_owned()))?;
        asked.set_fqdn(true);
        let unanswered = |reason: String| LookupError::Unanswered { name: name.to_owned(), reason };
        let lookup = tokio::time::timeout(LOOKUP_TIMEOUT, self.inner.lookup(asked, kind)).await;
        match lookup.map_err(|_| unanswered("no answer in time".to_owned()))? {
            Ok(found) => Ok(found.answers().iter().filter_map(|record| pick(&record.data)).collect()),
            Err(error) if says_none(&error) => Ok(Vec::new()),
            Err(error) => Err(unanswered(error.to_string())),
        }
    }
}

/// A server that is asked by UDP, and by TCP where an answer is long.
fn server_config(server: SocketAddr) -> NameServerConfig {
    let connections = [ConnectionConfig::udp(), ConnectionConfig::tcp()].map(|mut connection| {
        connection.port = server.port();
        connection
    });
    NameServerConfig::new(server.ip(), true, connections.to_vec())
}

/// Whether the name service has said that there is no such record. A failure of a server says nothing.
fn says_none(error: &NetError) -> bool {
    use hickory_resolver::{net::DnsError, proto::op::ResponseCode};
    let NetError::Dns(DnsError::NoRecordsFound(found)) = error else { return false };
    matches!(found.response_code, ResponseCode::NoError | ResponseCode::NXDomain)
}
