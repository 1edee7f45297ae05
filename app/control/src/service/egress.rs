//! Egress addresses, and the leases of their slices.

use std::{
    net::IpAddr,
    time::{Duration, Instant},
};

use http::StatusCode;
use sallyport_api::{
    CreateEgressAddress, CreateEgressSlice, EgressAddress as ApiAddress, EgressSlice, EgressSliceState,
    MoveEgressSlice, ReleaseEgressSliceQuery,
};
use sallyport_bus::EgressConfig;
use sallyport_model::{EdgeId, RegionName};
use sallyport_policy::Country;
use sallyport_ports::{
    AddressError, EgressAddress, HANDED_OUT, Lease, LeaseError, Leases, Phase, Purpose, Slice, SliceKey, SliceUse,
    UseState,
};
use sallyport_store::{StoreError, StoredEdge, StoredEgress, StoredEgressAddress};

use crate::{
    audit,
    clock::date,
    config::{LONE_EDGE, LONE_NAME, LONE_REGION},
    problem::ApiError,
    state::App,
};

/// How long flows of the former edge may go on, in seconds, unless the request says so.
const DEFAULT_WITHIN_SECONDS: u32 = 600;
/// The longest such time, in seconds.
const MAX_WITHIN_SECONDS: u32 = 86_400;
/// The most characters of bad input that a refusal repeats.
const MAX_SHOWN_CHARS: usize = 64;

fn shown(text: &str) -> String {
    text.chars().take(MAX_SHOWN_CHARS).collect()
}

fn address(text: &str) -> Result<IpAddr, ApiError> {
    text.trim().parse().map_err(|_| {
        let detail = format!("{:?} is no address: use one such as 198.51.100.7 or 2001:db8::7", shown(text));
        ApiError::field("address", detail)
    })
}

/// The id of a slice, as the API writes it.
fn slice_id(lease: &Lease) -> String {
    format!("{}-{}", lease.address, lease.slice)
}

/// Reads the id of a slice.
fn slice_key(text: &str) -> Result<SliceKey, ApiError> {
    let none = || ApiError::not_found("slice that an edge has");
    let (address, slice) = text.rsplit_once('-').ok_or_else(none)?;
    Ok((address.parse().map_err(|_| none())?, slice.parse().map_err(|_| none())?))
}

fn within(seconds: Option<u32>) -> Result<Duration, ApiError> {
    let seconds = seconds.unwrap_or(DEFAULT_WITHIN_SECONDS);
    if seconds > MAX_WITHIN_SECONDS {
        let detail = format!("flows may go on for {MAX_WITHIN_SECONDS} seconds at most");
        return Err(ApiError::field("within_seconds", detail));
    }
    Ok(Duration::from_secs(seconds.into()))
}

/// The field of the API that an error is about.
fn field_of(error: &AddressError) -> &'static str {
    match error {
        AddressError::NotShared(_) => "address",
        AddressError::Subdivision(_) => "subdivision",
        AddressError::City(_) => "city",
        AddressError::Purposes => "purposes",
    }
}

/// The edges of the installation, for names and sites.
pub(crate) struct KnownEdges(Vec<KnownEdge>);

struct KnownEdge {
    id: EdgeId,
    name: String,
    region: Option<RegionName>,
}

impl KnownEdges {
    fn by_id(&self, id: EdgeId) -> Option<&KnownEdge> {
        self.0.iter().find(|edge| edge.id == id)
    }

    /// The name; of a removed edge the id.
    fn name(&self, id: EdgeId) -> String {
        self.by_id(id).map_or_else(|| id.to_string(), |edge| edge.name.clone())
    }

    fn named(&self, text: &str) -> Result<EdgeId, ApiError> {
        let text = text.trim();
        let found = self.0.iter().find(|edge| edge.name == text || edge.id.to_string() == text);
        found.map(|edge| edge.id).ok_or_else(|| {
            let names: Vec<_> = self.0.iter().map(|edge| edge.name.as_str()).take(8).collect();
            let known =
                if names.is_empty() { "none has joined".to_owned() } else { format!("there is {}", names.join(", ")) };
            ApiError::field("edge", format!("there is no edge {:?}: {known}", shown(text)))
        })
    }
}

impl App {
    /// What edges get.
    pub(crate) async fn egress_config(&self) -> Result<EgressConfig, StoreError> {
        let StoredEgress { addresses, leases } = self.store.egress().await?;
        Ok(EgressConfig { addresses: addresses.into_iter().map(|one| one.address).collect(), leases })
    }

    /// Reads everything about egress from the store. The caller holds the publishing lock, or is the only one yet.
    pub(crate) async fn reload_egress(&self) -> Result<(), StoreError> {
        self.egress.put(self.egress_config().await?);
        Ok(())
    }

    /// Publishes the present state to edges.
    async fn publish_egress(&self) -> Result<(), ApiError> {
        let _turn = self.publishing.lock().await;
        Ok(self.reload_egress().await?)
    }

    /// The edges of the installation.
    pub(crate) async fn known_edges(&self) -> Result<KnownEdges, ApiError> {
        if self.edges.get().is_none() {
            let region = LONE_REGION.parse().ok();
            return Ok(KnownEdges(vec![KnownEdge { id: LONE_EDGE, name: LONE_NAME.to_owned(), region }]));
        }
        let known =
            |edge: StoredEdge| KnownEdge { id: edge.id, name: edge.name.to_string(), region: Some(edge.region) };
        Ok(KnownEdges(self.store.edges().await?.into_iter().map(known).collect()))
    }

    /// What an edge says of its slices, if it is there.
    fn uses_of(&self, edge: EdgeId) -> Option<Vec<SliceUse>> {
        if edge == LONE_EDGE && self.edges.get().is_none() {
            return Some(self.egress.uses().borrow().clone());
        }
        self.fleet.edge(edge).map(|edge| edge.card.egress.clone())
    }

    /// Renews the leases of edges that were heard, and ends what is due.
    pub(crate) async fn renew_egress_leases(&self, now: Instant) -> Result<(), ApiError> {
        let mut leases = self.leases.lock().await;
        leases.sync(self.store.egress().await?.leases, now);
        let before: Vec<Lease> = leases.all().cloned().collect();
        if self.edges.get().is_none() {
            let uses = self.egress.uses().borrow().clone();
            leases.handle_beat(LONE_EDGE, &uses, now);
        } else if self.fleet.stale_since().is_some() {
            leases.handle_deaf(now);
        } else {
            for edge in self.fleet.edges() {
                if let Some(heard) = self.fleet.last_seen(edge.card.edge) {
                    leases.handle_beat(edge.card.edge, &edge.card.egress, heard);
                }
            }
        }
        leases.handle_timeout(now);
        let mut is_changed = false;
        for lease in leases.all() {
            let former = before.iter().find(|former| former.key() == lease.key());
            if former != Some(lease) {
                is_changed |= self.store.put_egress_lease(lease, former).await?;
                tracing::info!(
                    address = %lease.address, slice = %lease.slice, edge = %lease.machine, term = lease.term,
                    phase = ?lease.phase, "the lease of a slice has changed"
                );
            }
        }
        drop(leases);
        if is_changed { self.publish_egress().await } else { Ok(()) }
    }

    /// Makes one change of leases, and publishes it.
    async fn change_lease(
        &self,
        change: impl FnOnce(&mut Leases, Instant) -> Result<Lease, LeaseError>,
    ) -> Result<Lease, ApiError> {
        let mut leases = self.leases.lock().await;
        let now = Instant::now();
        let stored = self.store.egress().await?.leases;
        leases.sync(stored.clone(), now);
        let changed = change(&mut leases, now);
        let lease = match changed {
            Ok(lease) => lease,
            Err(error) => return Err(self.refused_lease(&error).await?),
        };
        let former = stored.iter().find(|former| former.key() == lease.key());
        if !self.store.put_egress_lease(&lease, former).await? {
            leases.sync(self.store.egress().await?.leases, now);
            let detail = "the slice was changed by another request meanwhile: look at it, and try again";
            return Err(ApiError::new(StatusCode::CONFLICT, "slice-changed", detail));
        }
        drop(leases);
        self.publish_egress().await?;
        Ok(lease)
    }

    /// The refusal of a change of a lease.
    async fn refused_lease(&self, error: &LeaseError) -> Result<ApiError, ApiError> {
        Ok(match error {
            LeaseError::NotFree { address, slice, by } => {
                let edge = self.known_edges().await?.name(*by);
                let detail = format!(
                    "slice {slice} of {address} is at the edge {edge}: move it with `sallyport egress slice move`, or \
                     name another one"
                );
                ApiError::new(StatusCode::CONFLICT, "slice-taken", detail)
            }
            LeaseError::NoneFree(_) => ApiError::new(StatusCode::CONFLICT, "no-slice-free", error.to_string()),
            LeaseError::Unknown(..) => ApiError::new(StatusCode::NOT_FOUND, "not-found", error.to_string()),
            LeaseError::SameMachine => ApiError::field("edge", error),
        })
    }

    /// All egress addresses.
    pub(crate) async fn egress_addresses(&self) -> Result<Vec<ApiAddress>, ApiError> {
        let StoredEgress { addresses, leases } = self.store.egress().await?;
        Ok(addresses.into_iter().map(|one| self.egress_address_to_api(one, &leases)).collect())
    }

    /// Adds an egress address.
    pub(crate) async fn create_egress_address(&self, create: CreateEgressAddress) -> Result<ApiAddress, ApiError> {
        let new = StoredEgressAddress { address: tagged(&create)?, created_at: self.clock.now().unix_seconds };
        audit::set_target(new.address.address.to_string());
        self.store.create_egress_address(&new).await?;
        self.publish_egress().await?;
        tracing::info!(address = %new.address.address, "there is another egress address");
        Ok(self.egress_address_to_api(new, &[]))
    }

    /// Removes an egress address of which no edge has a slice.
    pub(crate) async fn delete_egress_address(&self, text: &str) -> Result<(), ApiError> {
        let missing = || ApiError::not_found("egress address");
        let address: IpAddr = text.parse().map_err(|_| missing())?;
        let mut leases = self.leases.lock().await;
        let StoredEgress { addresses, leases: stored } = self.store.egress().await?;
        if !addresses.iter().any(|one| one.address.address == address) {
            return Err(missing());
        }
        audit::set_target(address.to_string());
        leases.sync(stored, Instant::now());
        if !leases.forget(address) {
            let detail = format!("edges have slices of {address}: remove them first, `sallyport egress slice ls`");
            return Err(ApiError::new(StatusCode::CONFLICT, "address-in-use", detail));
        }
        if !self.store.delete_egress_address(address).await? {
            return Err(missing());
        }
        drop(leases);
        self.publish_egress().await?;
        tracing::info!(%address, "there is an egress address less");
        Ok(())
    }

    /// The slices that edges have.
    pub(crate) async fn egress_slices(&self) -> Result<Vec<EgressSlice>, ApiError> {
        let (stored, edges) = (self.store.egress().await?, self.known_edges().await?);
        let held = stored.leases.iter().filter(|lease| lease.receiver().is_some());
        Ok(held.map(|lease| self.egress_slice_to_api(lease, &stored.addresses, &edges)).collect())
    }

    /// Gives an edge a slice.
    pub(crate) async fn create_egress_slice(&self, create: CreateEgressSlice) -> Result<EgressSlice, ApiError> {
        let address = address(&create.address)?;
        let edges = self.known_edges().await?;
        let edge = edges.named(&create.edge)?;
        let slice = create.slice.map(Slice::try_from).transpose();
        let slice = slice.map_err(|error| ApiError::field("slice", error))?;
        let addresses = self.store.egress().await?.addresses;
        if !addresses.iter().any(|one| one.address.address == address) {
            let detail =
                format!("{address} is no egress address: add it first, `sallyport egress address add {address}`");
            return Err(ApiError::field("address", detail));
        }
        let lease = self.change_lease(|leases, now| leases.grant(address, slice, edge, now)).await?;
        audit::set_target(slice_id(&lease));
        tracing::info!(%address, slice = %lease.slice, %edge, "an edge has a slice");
        Ok(self.egress_slice_to_api(&lease, &addresses, &edges))
    }

    /// Moves a slice to another edge.
    pub(crate) async fn move_egress_slice(&self, id: &str, change: MoveEgressSlice) -> Result<EgressSlice, ApiError> {
        let (key, within) = (slice_key(id)?, within(change.within_seconds)?);
        audit::set_target(format!("{}-{}", key.0, key.1));
        let edges = self.known_edges().await?;
        let to = Some(edges.named(&change.edge)?);
        let lease = self
            .change_lease(|leases, now| {
                if change.is_off { leases.machine_is_off(key, to, now) } else { leases.move_to(key, to, within, now) }
            })
            .await?;
        Ok(self.egress_slice_to_api(&lease, &self.store.egress().await?.addresses, &edges))
    }

    /// Takes a slice from its edge.
    pub(crate) async fn delete_egress_slice(&self, id: &str, how: ReleaseEgressSliceQuery) -> Result<(), ApiError> {
        let (key, within) = (slice_key(id)?, within(how.within_seconds)?);
        audit::set_target(format!("{}-{}", key.0, key.1));
        let is_off = how.is_off == Some(true);
        self.change_lease(|leases, now| {
            if is_off { leases.machine_is_off(key, None, now) } else { leases.move_to(key, None, within, now) }
        })
        .await?;
        Ok(())
    }

    fn egress_address_to_api(&self, stored: StoredEgressAddress, leases: &[Lease]) -> ApiAddress {
        let EgressAddress { address, country, subdivision, city, purposes, site } = stored.address;
        let is_held = |lease: &&Lease| lease.address == address && lease.receiver().is_some();
        let slices = leases.iter().filter(is_held).count();
        let mut notes = Vec::new();
        if slices == 0 {
            notes.push(format!("no edge has a slice of it: `sallyport egress slice add {address} --edge NAME`"));
        }
        ApiAddress {
            address,
            country: country.map(|country| country.to_string()),
            subdivision,
            city,
            purposes: purposes.into_iter().map(String::from).collect(),
            site: site.map(String::from),
            slices,
            free_slices: HANDED_OUT - slices.min(HANDED_OUT),
            created_at: date(stored.created_at),
            notes,
        }
    }

    fn egress_slice_to_api(&self, lease: &Lease, addresses: &[StoredEgressAddress], edges: &KnownEdges) -> EgressSlice {
        let (state, next) = match lease.phase {
            Phase::Held => (EgressSliceState::Held, None),
            Phase::Draining { to: Some(to), .. } => (EgressSliceState::Moving, Some(to)),
            Phase::Draining { to: None, .. } | Phase::Free => (EgressSliceState::Releasing, None),
            Phase::Lapsed => (EgressSliceState::Lapsed, None),
        };
        let address = addresses.iter().map(|one| &one.address).find(|one| one.address == lease.address);
        let address_site = address.and_then(|address| address.site.clone());
        let card = self.fleet.edge(lease.machine).map(|edge| edge.card);
        let known = edges.by_id(lease.machine);
        let site = known.and_then(|edge| edge.region.clone());
        let uses = self.uses_of(lease.machine);
        let found = uses.as_ref().and_then(|uses| {
            uses.iter().find(|one| (one.address, one.slice, one.term) == (lease.address, lease.slice, lease.term))
        });
        let mut notes: Vec<String> = found.and_then(|found| found.problem.clone()).into_iter().collect();
        match known {
            None => notes.push("its edge was removed: if the edge is off, remove the slice with --is-off".to_owned()),
            Some(_) if uses.is_none() => notes.push("its edge is not there now".to_owned()),
            Some(_) if found.is_none() => notes.push("its edge does not know of the lease yet".to_owned()),
            Some(_) => {}
        }
        if let (Some(one), Some(other)) = (&site, &address_site)
            && one != other
        {
            notes.push(format!("packets for the address come to the site {other}, and the edge is in {one}"));
        }
        let mut edge_addresses: Vec<IpAddr> =
            card.iter().flat_map(|card| card.addresses.iter().map(|one| one.ip().to_canonical())).collect();
        edge_addresses.dedup();
        EgressSlice {
            id: slice_id(lease),
            address: lease.address,
            slice: lease.slice.number(),
            first_port: lease.slice.first_port(),
            last_port: lease.slice.last_port(),
            state,
            edge: edges.name(lease.machine),
            edge_id: lease.machine.uuid(),
            edge_addresses,
            site: site.map(String::from),
            address_site: address_site.map(String::from),
            next_edge: next.map(|next| edges.name(next)),
            term: lease.term,
            is_open: found.map(|found| found.state == UseState::Open && found.problem.is_none()),
            notes,
        }
    }
}

/// The address with its tags, checked.
fn tagged(create: &CreateEgressAddress) -> Result<EgressAddress, ApiError> {
    let country = create.country.as_deref().map(str::trim).map(str::parse::<Country>).transpose();
    let site = create.site.as_deref().map(str::trim).map(str::parse::<RegionName>).transpose();
    let purposes = create.purposes.iter().flatten().map(|text| text.parse::<Purpose>());
    let new = EgressAddress {
        address: address(&create.address)?,
        country: country.map_err(|error| ApiError::field("country", error))?,
        subdivision: create.subdivision.clone(),
        city: create.city.clone(),
        purposes: purposes.collect::<Result<_, _>>().map_err(|error| ApiError::field("purposes", error))?,
        site: site.map_err(|error| ApiError::field("site", error))?,
    };
    new.check().map_err(|error| ApiError::field(field_of(&error), error))?;
    Ok(new)
}
