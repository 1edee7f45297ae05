//! Zones of the name server: the installation's own, and those of organisations.

use http::StatusCode;
use sallyport_api::{CreateZone, CreateZoneRecord, Zone, ZoneKey as ApiZoneKey, ZoneRecord};
use sallyport_domains::{RECORD_LABEL, proof};
use sallyport_identity::Purpose;
use sallyport_model::{
    ALL_EDGES, AccountId, ServedZone, ZoneId, ZoneKey, ZoneKeyAlgorithm, ZoneKeyRole, ZoneRecord as Record,
    ZoneRecordId,
};
use sallyport_store::{StoredZone, StoredZoneRecord};
use sallyport_zone::{
    dnssec::{KeyTimes, PlannedRollover, SigningKey, plan_csk_rollover, plan_ksk_rollover, plan_zsk_rollover},
    served::{APEX_TTL_SECONDS, key_times, parent_zone, served_zone},
};

use crate::{audit, clock::date, problem::ApiError, security::random, state::App};

/// How long others may keep the addresses of edges, in seconds: an edge that is gone is left out soon.
const EDGES_TTL_SECONDS: u32 = 30;
/// How long others may keep other records that the server makes, in seconds.
const OWN_TTL_SECONDS: u32 = 300;
/// The labels of the name servers below the domain of the installation.
const NAME_SERVERS: [&str; 2] = ["ns1", "ns2"];
/// How long a DS record of the parent may be kept, in seconds: a day, as at most registries.
const PARENT_DS_TTL_SECONDS: u32 = 86_400;
/// The most bytes of a zone as the bus carries it: one message of at most 1,000,000 bytes, with room for keys.
const MAX_ZONE_BYTES: usize = 900_000;
/// The most ALIAS records of a zone.
const MAX_ALIASES_PER_ZONE: usize = 100;
/// The longest string of a TXT record, in bytes.
const MAX_STRING_BYTES: usize = 255;
/// How long a signed zone keeps its serial number, in seconds. Secondaries get new signatures with a new one.
const MAX_SERIAL_AGE_SECONDS: u64 = 6 * 86_400;
/// How often a secret is drawn that is no key.
const MAX_SECRET_TRIES: usize = 4;

/// An error of a zone, for the API.
fn refused(field: &str, detail: impl std::fmt::Display) -> ApiError {
    ApiError::field(field, detail)
}

impl App {
    /// The names of the installation's name servers.
    pub(crate) fn name_servers(&self) -> Vec<String> {
        NAME_SERVERS.iter().map(|label| format!("{label}.{}", self.config.domain)).collect()
    }

    /// A record of the installation's own zone, by which control recognises its name server: the name and the text.
    pub(crate) fn zone_mark(&self) -> (String, String) {
        let mark = proof(&self.domain_secret, AccountId::from_bytes([0; 16]));
        (format!("{RECORD_LABEL}.{}", self.config.domain), mark)
    }

    /// The records that the server makes itself: addresses of edges for the names of the installation, and the proof of
    /// ownership for a zone of an organisation.
    fn own_records(&self, zone: &StoredZone) -> Vec<Record> {
        let record = |name: String, record_type: &str, ttl: u32, value: String| Record {
            name,
            record_type: record_type.to_owned(),
            ttl,
            value,
        };
        let apex = &zone.apex;
        if let Some(organisation) = zone.organisation {
            let proof = format!("\"{}\"", self.domain_proof(organisation));
            return vec![record(format!("{RECORD_LABEL}.{apex}"), "TXT", OWN_TTL_SECONDS, proof)];
        }
        let (name, mark) = self.zone_mark();
        let mark = record(name, "TXT", OWN_TTL_SECONDS, format!("\"{mark}\""));
        let names = [apex.clone(), format!("*.{apex}")].into_iter().chain(self.name_servers());
        let edges = names.map(|name| record(name, "EDGES", EDGES_TTL_SECONDS, ALL_EDGES.to_owned()));
        edges.chain([mark]).collect()
    }

    /// The zone as edges answer for it. Records of its owner come before those of the server at the same name.
    pub(crate) fn published_zone(&self, zone: &StoredZone, mut served: ServedZone) -> ServedZone {
        served.name_servers = self.name_servers();
        let own_domain = &self.config.domain;
        // The addresses of edges are known here: such an alias is followed at once.
        for record in served.records.iter_mut().filter(|record| is_alias(record)) {
            let target = record.value.trim_end_matches('.').to_ascii_lowercase();
            let is_ours = target == *own_domain || target.strip_suffix(own_domain).is_some_and(|at| at.ends_with('.'));
            if is_ours {
                record.record_type = "EDGES".to_owned();
                record.value = ALL_EDGES.to_owned();
            }
        }
        let own: Vec<_> =
            self.own_records(zone).into_iter().filter(|own| !is_displaced(own, &served.records)).collect();
        served.records.extend(own);
        served
    }

    /// Fails if the records make no zone.
    fn check_zone(&self, zone: &StoredZone, served: ServedZone) -> Result<(), ApiError> {
        let served = self.published_zone(zone, served);
        let now = u64::try_from(self.clock.now().unix_seconds).unwrap_or_default();
        let open = |sealed: &str| self.open_zone_secret(sealed);
        served_zone(&served, open, now).map(drop).map_err(|error| refused("value", error))
    }

    fn open_zone_secret(&self, sealed: &str) -> Option<[u8; 32]> {
        self.sealer.open::<[u8; 32]>(Purpose::ZoneKey, sealed)
    }

    /// A new key that signs from now on.
    fn new_zone_key(&self, now: u64, algorithm: ZoneKeyAlgorithm, role: ZoneKeyRole) -> Result<ZoneKey, ApiError> {
        for _ in 0..MAX_SECRET_TRIES {
            let secret: [u8; 32] = random::bytes()?;
            let sealed = self.sealer.seal(Purpose::ZoneKey, &secret, random::bytes()?);
            let sealed_secret = sealed.ok_or_else(|| ApiError::internal("a key could not be sealed"))?;
            let key = ZoneKey {
                algorithm,
                // The test below is whether the secret makes a key.
                role: ZoneKeyRole::Combined,
                sealed_secret,
                published: now,
                active: now,
                retired: None,
                removed: None,
                ds_from: Some(now),
                ds_until: None,
            };
            let test = ServedZone {
                id: ZoneId::from_bytes([0; 16]),
                apex: self.config.domain.clone(),
                serial: 1,
                name_servers: self.name_servers(),
                records: Vec::new(),
                keys: vec![key.clone()],
            };
            if served_zone(&test, |sealed| self.open_zone_secret(sealed), now).is_ok() {
                let ds_from = key.ds_from.filter(|_| role != ZoneKeyRole::ZoneSigning);
                return Ok(ZoneKey { role, ds_from, ..key });
            }
        }
        Err(ApiError::internal("no key of a zone could be made"))
    }

    fn unix_now(&self) -> u64 {
        u64::try_from(self.clock.now().unix_seconds).unwrap_or_default()
    }

    /// Makes the zone of the installation, unless it is there.
    pub(crate) async fn ensure_own_zone(&self) -> Result<(), ApiError> {
        let apex = self.config.domain.clone();
        if self.store.zone(&apex).await?.is_none() {
            let zone = self.new_zone(None, apex)?;
            let keys = [self.new_zone_key(self.unix_now(), ZoneKeyAlgorithm::EcdsaP256, ZoneKeyRole::Combined)?];
            self.store.create_zone(&zone, &keys).await?;
            tracing::info!(zone = zone.apex, "zone of the installation made");
        }
        Ok(())
    }

    fn new_zone(&self, organisation: Option<AccountId>, apex: String) -> Result<StoredZone, ApiError> {
        let now = self.clock.now().unix_seconds;
        let serial = u32::try_from(now).unwrap_or(1);
        Ok(StoredZone { id: ZoneId::from_random(random::bytes()?), organisation, apex, serial, created_at: now })
    }

    /// A zone that the caller may see and change: of its organisation, and for the owner of the installation also the
    /// installation's.
    pub(crate) async fn find_zone(
        &self,
        organisation: AccountId,
        is_owner: bool,
        name: &str,
    ) -> Result<StoredZone, ApiError> {
        let apex = name.trim_end_matches('.').to_ascii_lowercase();
        let found = self.store.zone(&apex).await?;
        let is_visible = |zone: &StoredZone| zone.organisation.map_or(is_owner, |owner| owner == organisation);
        found.filter(is_visible).ok_or_else(|| ApiError::not_found("zone"))
    }

    /// The zone in the form of the API.
    pub(crate) async fn zone_to_api(&self, zone: &StoredZone) -> Result<Zone, ApiError> {
        let whole = self.store.whole_zone(zone.id).await?.ok_or_else(|| ApiError::not_found("zone"))?;
        let (stored, served) = whole;
        let records = u32::try_from(served.records.len()).unwrap_or(u32::MAX);
        let now = self.unix_now();
        let served = self.published_zone(&stored, served);
        let made = served_zone(&served, |sealed| self.open_zone_secret(sealed), now).map_err(ApiError::internal)?;
        Ok(Zone {
            id: stored.id.uuid(),
            name: stored.apex,
            is_of_installation: stored.organisation.is_none(),
            name_servers: served.name_servers,
            ds: made.keys().map(|keys| keys.ds_texts(now)).unwrap_or_default(),
            keys: made.keys().map(|keys| shown_keys(keys.keys(), &served.keys, now)).unwrap_or_default(),
            records,
            serial: stored.serial,
            created_at: date(stored.created_at),
        })
    }

    /// Makes a zone of the organisation.
    pub(crate) async fn create_zone(
        &self,
        organisation: AccountId,
        is_owner: bool,
        create: &CreateZone,
    ) -> Result<StoredZone, ApiError> {
        if !self.config.has_name_server {
            let detail = "this server has no name server: its operator starts it with --listen-dns";
            return Err(ApiError::new(StatusCode::CONFLICT, "no-name-server", detail));
        }
        let name = self.domain_name("name", &create.name)?;
        if name.is_wildcard() {
            return Err(refused("name", "a zone has a plain name: a wildcard is a record in it"));
        }
        let verified = self.store.domain(organisation, &name).await?.filter(|domain| domain.verified_at.is_some());
        if verified.is_none() && !is_owner {
            let detail = format!(
                "{name} is not a verified domain of this organisation: `sallyport domain add {name}` first, and lead \
                 the domain here when the zone is ready"
            );
            return Err(ApiError::new(StatusCode::CONFLICT, "domain-not-verified", detail));
        }
        let zone = self.new_zone(Some(organisation), name.to_string())?;
        let algorithm = match &create.algorithm {
            Some(text) => text.parse().map_err(|error: String| refused("algorithm", error))?,
            None => ZoneKeyAlgorithm::EcdsaP256,
        };
        if !create.signed && (create.algorithm.is_some() || create.split_keys) {
            return Err(refused("signed", "a zone without signatures has no keys"));
        }
        let roles: &[ZoneKeyRole] = match (create.signed, create.split_keys) {
            (false, _) => &[],
            (true, false) => &[ZoneKeyRole::Combined],
            (true, true) => &[ZoneKeyRole::KeySigning, ZoneKeyRole::ZoneSigning],
        };
        let now = self.unix_now();
        let keys = roles.iter().map(|role| self.new_zone_key(now, algorithm, *role));
        let keys = keys.collect::<Result<Vec<_>, _>>()?;
        self.store.create_zone(&zone, &keys).await?;
        self.publish_zone(zone.id).await?;
        self.renew_parent_serial(&zone.apex).await?;
        audit::set_target(&zone.apex);
        tracing::info!(zone = zone.apex, "zone made");
        Ok(zone)
    }

    /// The records of a zone, those of its owner first.
    pub(crate) async fn zone_records(&self, zone: &StoredZone) -> Result<Vec<ZoneRecord>, ApiError> {
        let to_api = |id: Option<ZoneRecordId>, record: Record| ZoneRecord {
            id: id.map(|id| id.uuid()),
            name: record.name,
            record_type: record.record_type,
            ttl: record.ttl,
            value: record.value,
        };
        let stored = self.store.zone_records(zone.id).await?;
        let (ids, records): (Vec<_>, Vec<_>) = stored.into_iter().map(|one| (one.id, one.record)).unzip();
        let own: Vec<_> = self.own_records(zone).into_iter().filter(|own| !is_displaced(own, &records)).collect();
        let shown = ids.into_iter().map(Some).zip(records).chain(own.into_iter().map(|own| (None, own)));
        Ok(shown.map(|(id, record)| to_api(id, record)).collect())
    }

    /// Adds a record to a zone; edges answer with it when this returns.
    pub(crate) async fn add_zone_record(
        &self,
        zone: &StoredZone,
        create: CreateZoneRecord,
    ) -> Result<ZoneRecord, ApiError> {
        let name = match create.name.trim().to_ascii_lowercase().as_str() {
            "@" | "" => zone.apex.clone(),
            full if full.ends_with('.') => full.trim_end_matches('.').to_owned(),
            full if full == zone.apex || full.ends_with(&format!(".{}", zone.apex)) => full.to_owned(),
            label => format!("{label}.{}", zone.apex),
        };
        let record_type = create.record_type.trim().to_ascii_uppercase();
        if name == zone.apex && matches!(record_type.as_str(), "SOA" | "NS") {
            return Err(refused("type", "the server makes the SOA and NS records of a zone itself"));
        }
        let value = record_value(&record_type, create.value.trim(), &zone.apex)?;
        let record = Record { name, record_type, ttl: create.ttl, value };
        if is_alias(&record) {
            let known = self.store.zone_records(zone.id).await?;
            if known.iter().filter(|one| is_alias(&one.record)).count() >= MAX_ALIASES_PER_ZONE {
                return Err(refused("type", format!("a zone has at most {MAX_ALIASES_PER_ZONE} ALIAS records")));
            }
        }
        let new = StoredZoneRecord { id: ZoneRecordId::from_random(random::bytes()?), record };
        let added = std::slice::from_ref(&new);
        let now = self.clock.now().unix_seconds;
        let check = |served: ServedZone| {
            check_size(&served)?;
            self.check_zone(zone, served)
        };
        if !self.store.change_zone(zone.id, (added, &[]), None, now, check).await? {
            return Err(ApiError::not_found("zone"));
        }
        self.publish_zone(zone.id).await?;
        audit::set_target(&zone.apex);
        let Record { name, record_type, ttl, value } = new.record;
        Ok(ZoneRecord { id: Some(new.id.uuid()), name, record_type, ttl, value })
    }

    /// Removes a record of a zone; edges know it when this returns.
    pub(crate) async fn delete_zone_record(&self, zone: &StoredZone, id: &str) -> Result<(), ApiError> {
        let id: ZoneRecordId = id.parse().map_err(|_| ApiError::not_found("record"))?;
        let known = self.store.zone_records(zone.id).await?;
        if !known.iter().any(|record| record.id == id) {
            return Err(ApiError::not_found("record"));
        }
        let check = |served| self.check_zone(zone, served);
        self.store.change_zone(zone.id, (&[], &[id]), None, self.clock.now().unix_seconds, check).await?;
        self.publish_zone(zone.id).await?;
        audit::set_target(&zone.apex);
        Ok(())
    }

    /// Begins the rollover of a zone's key, or goes on with it: the first call adds a key, and a second one, after the
    /// parent has the new DS record, ends the former key. The key of the records alone (ZSK), which the parent does not
    /// know, needs one call.
    pub(crate) async fn roll_zone_key(&self, zone: &StoredZone, of_records: bool) -> Result<(), ApiError> {
        let (_, served) = self.store.whole_zone(zone.id).await?.ok_or_else(|| ApiError::not_found("zone"))?;
        let (now, mut keys) = (self.unix_now(), served.keys);
        keys.retain(|key| key.removed.is_none_or(|removed| removed > now));
        let conflict = |code, detail: &str| Err(ApiError::new(StatusCode::CONFLICT, code, detail));
        let longest = served.records.iter().map(|record| record.ttl).max().unwrap_or_default().max(APEX_TTL_SECONDS);
        let is_concerned = |key: &ZoneKey| (key.role == ZoneKeyRole::ZoneSigning) == of_records;
        if of_records && !keys.is_empty() && !keys.iter().any(is_concerned) {
            return Err(refused("key", "one key signs everything in this zone: it has no ZSK"));
        }
        let mut concerned: Vec<&mut ZoneKey> = keys.iter_mut().filter(|key| is_concerned(key)).collect();
        let successor = match concerned.as_mut_slice() {
            [] => return conflict("not-signed", "this zone is not signed, so it has no key to replace"),
            [only] => {
                let plan = planned_rollover(only.role, key_times(only), now, None, longest);
                set_times(only, plan.former);
                let mut successor = self.new_zone_key(now, only.algorithm, only.role)?;
                set_times(&mut successor, plan.successor);
                Some(successor)
            }
            [former, successor] if former.retired.is_none() => {
                if successor.ds_from.is_some_and(|from| from > now) {
                    let detail = "the new key is too young: others may still keep the former keys; see the DS records \
                                  of the zone, and try again in two hours";
                    return conflict("rollover-too-early", detail);
                }
                // A KSK waits for its DS record, and a CSK signs from the beginning.
                let begun = match successor.role {
                    ZoneKeyRole::KeySigning => successor.ds_from.unwrap_or(now),
                    _ => successor.published,
                };
                let plan = planned_rollover(former.role, key_times(former), begun, Some(now), longest);
                set_times(former, plan.former);
                set_times(successor, plan.successor);
                None
            }
            _ => return conflict("rollover-runs", "the former key ends by itself: wait until it is gone"),
        };
        keys.extend(successor);
        let check = |served| self.check_zone(zone, served);
        let time = self.clock.now().unix_seconds;
        self.store.change_zone(zone.id, (&[], &[]), Some(&keys), time, check).await?;
        self.publish_zone(zone.id).await?;
        self.renew_parent_serial(&zone.apex).await?;
        audit::set_target(&zone.apex);
        Ok(())
    }

    /// Removes a zone of an organisation; edges know it when this returns.
    pub(crate) async fn delete_zone(&self, zone: &StoredZone) -> Result<(), ApiError> {
        if zone.organisation.is_none() {
            let detail = "the zone of the installation stays: stop its name server with no --listen-dns";
            return Err(ApiError::new(StatusCode::CONFLICT, "own-zone", detail));
        }
        self.store.delete_zone(zone.id).await?;
        self.unpublish_zone(zone.id).await;
        self.renew_parent_serial(&zone.apex).await?;
        audit::set_target(&zone.apex);
        tracing::info!(zone = zone.apex, "zone removed");
        Ok(())
    }

    /// Takes a zone away from edges that was removed from the store. Not while a former state is being published, which
    /// would bring the zone back.
    pub(super) async fn unpublish_zone(&self, id: ZoneId) {
        let _turn = self.publishing.lock().await;
        self.zones.remove(id);
    }

    /// The zone of the organisation above this name, if it has one.
    pub(crate) async fn zone_above(&self, organisation: AccountId, name: &str) -> Result<Option<StoredZone>, ApiError> {
        let zones = self.store.zones().await?;
        let is_own = |apex: &str| zones.iter().any(|zone| zone.apex == apex && zone.organisation == Some(organisation));
        let above = parent_zone(name, is_own);
        Ok(zones.iter().find(|zone| Some(zone.apex.as_str()) == above).cloned())
    }

    /// A zone of another organisation that is directly below one of this organisation, which may remove it: the names
    /// below a domain are its owner's.
    pub(crate) async fn find_zone_below_own(
        &self,
        organisation: AccountId,
        name: &str,
    ) -> Result<StoredZone, ApiError> {
        let apex = name.trim_end_matches('.').to_ascii_lowercase();
        let found = self.store.zone(&apex).await?.filter(|zone| zone.organisation.is_some());
        let above = self.zone_above(organisation, &apex).await?;
        let has_proof = match &above {
            Some(above) => match above.apex.parse() {
                Ok(name) => self.store.verified_domain(&name).await?.is_some_and(|it| it.organisation == organisation),
                Err(_) => false,
            },
            None => false,
        };
        found.filter(|_| has_proof).ok_or_else(|| ApiError::not_found("zone"))
    }

    /// Publishes the present state of a zone to edges.
    pub(crate) async fn publish_zone(&self, id: ZoneId) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        match self.store.whole_zone(id).await? {
            Some((stored, served)) => self.zones.put(self.published_zone(&stored, served)),
            None => self.zones.remove(id),
        }
        Ok(())
    }

    /// Makes the zone of the installation, and publishes all zones, if there is a name server.
    pub(crate) async fn open_zones(&self) -> Result<(), ApiError> {
        if !self.config.has_name_server {
            return Ok(());
        }
        self.ensure_own_zone().await?;
        self.reload_zones().await
    }

    /// Gives signed zones a new serial number when a key has changed its phase, or after six days: secondaries then get
    /// new signatures.
    pub(crate) async fn renew_serials(&self) -> Result<(), ApiError> {
        let now = self.unix_now();
        for zone in self.store.zones().await? {
            let Some((_, served)) = self.store.whole_zone(zone.id).await? else { continue };
            if !is_serial_due(u64::from(zone.serial), &served.keys, now) {
                continue;
            }
            self.renew_serial(&zone).await?;
            self.renew_parent_serial(&zone.apex).await?;
        }
        Ok(())
    }

    async fn renew_serial(&self, zone: &StoredZone) -> Result<(), ApiError> {
        let check = |_| Ok::<(), ApiError>(());
        self.store.change_zone(zone.id, (&[], &[]), None, self.clock.now().unix_seconds, check).await?;
        self.publish_zone(zone.id).await?;
        tracing::debug!(zone = zone.apex, "the zone has a new serial number for its secondaries");
        Ok(())
    }

    /// Gives the zone above a zone a new serial number: it delegates the other one, whose keys have changed.
    pub(super) async fn renew_parent_serial(&self, apex: &str) -> Result<(), ApiError> {
        let zones = self.store.zones().await?;
        let parent = parent_zone(apex, |name| zones.iter().any(|zone| zone.apex == name));
        match zones.iter().find(|zone| Some(zone.apex.as_str()) == parent) {
            Some(parent) => self.renew_serial(parent).await,
            None => Ok(()),
        }
    }

    /// Reads the zones from the store again: another control may have changed them.
    pub(crate) async fn reload_zones(&self) -> Result<(), ApiError> {
        let stored = self.store.zones().await?;
        for gone in self.zones.all().iter().filter(|zone| !stored.iter().any(|known| known.id == zone.id)) {
            self.zones.remove(gone.id);
        }
        for zone in stored {
            if let Some((stored, served)) = self.store.whole_zone(zone.id).await? {
                self.zones.put(self.published_zone(&stored, served));
            }
        }
        Ok(())
    }
}

/// Whether a zone with these keys needs a new serial number. The number is the time of the last change.
fn is_serial_due(serial: u64, keys: &[ZoneKey], now: u64) -> bool {
    let has_changed = |key: &ZoneKey| {
        let times = [Some(key.published), Some(key.active), key.retired, key.removed, key.ds_from, key.ds_until];
        times.into_iter().flatten().any(|time| time > serial && time <= now)
    };
    !keys.is_empty() && (now.saturating_sub(serial) >= MAX_SERIAL_AGE_SECONDS || keys.iter().any(has_changed))
}

fn is_alias(record: &Record) -> bool {
    matches!(record.record_type.as_str(), "ALIAS" | "ANAME")
}

/// Whether records of the owner of a zone take the place of addresses that the server sets.
fn is_displaced(own: &Record, records: &[Record]) -> bool {
    let has_place = |record: &Record| {
        record.name == own.name
            && matches!(record.record_type.as_str(), "A" | "AAAA" | "CNAME" | "ALIAS" | "ANAME" | "EDGES")
    };
    own.record_type == "EDGES" && records.iter().any(has_place)
}

/// The value of a record as a zone has it, from what a person writes.
///
/// A text without double quotes is one string: in a zone file, blanks would split it, and a semicolon would end it.
///
/// A name with dots in it is a full one: with a dot at its end, or below the zone. Any other could mean two names.
fn record_value(record_type: &str, value: &str, apex: &str) -> Result<String, ApiError> {
    if matches!(record_type, "TXT" | "SPF") && !value.contains('"') && !value.starts_with("\\#") {
        let strings: Vec<String> = value
            .as_bytes()
            .chunks(MAX_STRING_BYTES)
            .map(|part| {
                let escaped: String = part.iter().map(|byte| escaped(*byte)).collect();
                format!("\"{escaped}\"")
            })
            .collect();
        return Ok(strings.join(" "));
    }
    let mut is_quoted = false;
    for (at, byte) in value.bytes().enumerate() {
        let is_escaped = at > 0 && value.as_bytes()[at - 1] == b'\\';
        match byte {
            b'"' if !is_escaped => is_quoted = !is_quoted,
            b';' if !is_quoted && !is_escaped => {
                let detail = "a semicolon would begin a comment: put the text in double quotes";
                return Err(refused("value", detail));
            }
            _ => {}
        }
    }
    let last = value.split_whitespace().next_back().unwrap_or_default();
    let has_target = matches!(record_type, "MX" | "NS" | "CNAME" | "DNAME" | "SRV" | "PTR" | "ALIAS" | "ANAME");
    if has_target && last.trim_end_matches('.').parse::<std::net::IpAddr>().is_ok() {
        return Err(refused("value", format!("{last} is an address: {record_type} has the name of a host")));
    }
    let is_full = last.ends_with('.') || !last.contains('.');
    if !has_target || is_full {
        return Ok(value.to_owned());
    }
    let lower = last.to_ascii_lowercase();
    if lower == apex || lower.strip_suffix(apex).is_some_and(|label| label.ends_with('.')) {
        return Ok(format!("{value}."));
    }
    Err(refused("value", format!("{last} could mean two names: write {last}. or {last}.{apex}.")))
}

/// A byte of a string between double quotes, as a zone file has it.
fn escaped(byte: u8) -> String {
    match byte {
        b'\\' => "\\\\".to_owned(),
        b' '..=b'~' => char::from(byte).to_string(),
        _ => format!("\\{byte:03}"),
    }
}

/// Refuses a zone that the bus could not carry as one message. What removes records, or replaces keys, is not bound.
fn check_size(served: &ServedZone) -> Result<(), ApiError> {
    let bytes = serde_json::to_vec(served).map_err(ApiError::internal)?.len();
    if bytes > MAX_ZONE_BYTES {
        let detail = format!("a zone has at most {MAX_ZONE_BYTES} bytes of records: use several zones");
        return Err(ApiError::new(StatusCode::CONFLICT, "limit-reached", detail));
    }
    Ok(())
}

/// The times of a key of this role and of its successor. `seen` is when the parent had the new DS record.
fn planned_rollover(
    role: ZoneKeyRole,
    former: KeyTimes,
    begun: u64,
    seen: Option<u64>,
    longest_ttl: u32,
) -> PlannedRollover {
    match role {
        ZoneKeyRole::Combined => plan_csk_rollover(former, begun, seen, PARENT_DS_TTL_SECONDS, longest_ttl),
        ZoneKeyRole::KeySigning => plan_ksk_rollover(former, begun, seen, PARENT_DS_TTL_SECONDS, APEX_TTL_SECONDS),
        ZoneKeyRole::ZoneSigning => plan_zsk_rollover(former, begun, APEX_TTL_SECONDS, longest_ttl),
    }
}

/// The keys in the form of the API. `stored` are the same keys.
fn shown_keys(keys: &[SigningKey], stored: &[ZoneKey], now: u64) -> Vec<ApiZoneKey> {
    let shown = keys.iter().zip(stored).filter(|(_, stored)| stored.removed.is_none_or(|removed| removed > now));
    let shown = shown.map(|(key, stored)| ApiZoneKey {
        tag: key.tag(),
        role: stored.role.as_str().to_owned(),
        algorithm: stored.algorithm.as_str().to_owned(),
        is_active: stored.active <= now && stored.retired.is_none_or(|retired| retired > now),
    });
    shown.collect()
}

fn set_times(key: &mut ZoneKey, times: KeyTimes) {
    key.published = times.published;
    key.active = times.active;
    (key.retired, key.removed) = (times.retired, times.removed);
    (key.ds_from, key.ds_until) = (times.ds_from, times.ds_until);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_quotes_is_one_string() {
        let value = |record_type: &str, text: &str| record_value(record_type, text, "example.org").unwrap();
        assert_eq!(value("TXT", "v=DMARC1; p=reject"), "\"v=DMARC1; p=reject\"");
        assert_eq!(value("TXT", r"a\b"), r#""a\\b""#);
        assert_eq!(value("TXT", "\"one\" \"two\""), "\"one\" \"two\"");
        assert_eq!(value("TXT", &"x".repeat(300)).len(), 300 + 5);
        assert_eq!(value("CAA", "0 issue \"ca.example; a=b\""), "0 issue \"ca.example; a=b\"");
        assert_eq!(value("MX", "10 mail"), "10 mail");
        for (record_type, text) in [("CAA", "0 issue a; b"), ("MX", "10 192.0.2.1"), ("CNAME", "192.0.2.1.")] {
            assert!(record_value(record_type, text, "example.org").is_err(), "{record_type} {text}");
        }
    }

    #[test]
    fn a_target_with_dots_is_a_full_name_or_refused() {
        let value = |text: &str| record_value("MX", text, "example.org").map_err(|error| error.sentence().to_owned());
        assert_eq!(value("10 mail.example.net.").unwrap(), "10 mail.example.net.");
        assert_eq!(value("10 mail.Example.org").unwrap(), "10 mail.Example.org.");
        assert_eq!(value("10 example.org").unwrap(), "10 example.org.");
        let sentence = value("10 mail.example.net").unwrap_err();
        assert!(sentence.contains("write mail.example.net. or mail.example.net.example.org."), "{sentence}");
        assert!(value("10 xexample.org").is_err());
    }

    #[test]
    fn other_records_at_a_name_leave_the_addresses_of_edges_there() {
        let record = |name: &str, record_type: &str| Record {
            name: name.into(),
            record_type: record_type.into(),
            ttl: 60,
            value: String::new(),
        };
        let own = record("t.example", "EDGES");
        for (record_type, is_taken) in [("CAA", false), ("TXT", false), ("A", true), ("CNAME", true), ("ALIAS", true)] {
            assert_eq!(is_displaced(&own, &[record("t.example", record_type)]), is_taken, "{record_type}");
        }
        assert!(!is_displaced(&own, &[record("www.t.example", "A")]));
    }

    #[test]
    fn a_serial_number_is_renewed_in_time_and_with_the_phases_of_keys() {
        let key = |removed| ZoneKey {
            algorithm: ZoneKeyAlgorithm::EcdsaP256,
            role: ZoneKeyRole::Combined,
            sealed_secret: String::new(),
            published: 10,
            active: 10,
            retired: None,
            removed,
            ds_from: Some(10),
            ds_until: None,
        };
        assert!(!is_serial_due(10, &[key(None)], 11));
        assert!(is_serial_due(10, &[key(None)], 10 + MAX_SERIAL_AGE_SECONDS));
        assert!(!is_serial_due(10, &[], 10 + MAX_SERIAL_AGE_SECONDS));
        assert!(!is_serial_due(10, &[key(Some(20))], 19) && is_serial_due(10, &[key(Some(20))], 20));
        assert!(!is_serial_due(20, &[key(Some(20))], 21));
    }
}
