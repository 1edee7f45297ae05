//! The schema of the database, version by version. A released migration is never changed.
//!
//! Migrations are written for SQLite; [`super::dialect`] translates them for PostgreSQL, and lists the supported
//! constructs.

use sqlx::SqlitePool;

use super::{error::StoreError, open::APPLICATION_ID, sql::DbPool, write::Write};

/// Migration `n` (counted from 1) takes a database from version `n - 1` to version `n`.
const MIGRATIONS: &[&str] = &[
    "
    CREATE TABLE accounts (
        id            BLOB PRIMARY KEY CHECK (length(id) = 16),
        name          TEXT NOT NULL,
        email         TEXT NOT NULL,
        email_key     TEXT NOT NULL UNIQUE,
        password_hash TEXT NOT NULL,
        created_at    INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE login_sessions (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        account    BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        ended      INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX login_sessions_of_account ON login_sessions (account, created_at);
    CREATE INDEX login_sessions_by_end ON login_sessions (expires_at);

    CREATE TABLE refresh_tokens (
        hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
        session    BLOB NOT NULL REFERENCES login_sessions (id) ON DELETE CASCADE,
        expires_at INTEGER NOT NULL,
        used       INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX refresh_tokens_of_session ON refresh_tokens (session);

    CREATE TABLE tokens (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        account    BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position   INTEGER NOT NULL,
        name       TEXT NOT NULL,
        scopes     TEXT NOT NULL,
        hash       BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        UNIQUE (account, position)
    ) STRICT;

    -- Every name that was ever given out. Rows are never deleted: a name is not reused.
    CREATE TABLE names (
        name     TEXT PRIMARY KEY,
        taken_at INTEGER NOT NULL
    ) STRICT;

    CREATE TABLE sockets (
        id                  BLOB PRIMARY KEY CHECK (length(id) = 16),
        account             BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position            INTEGER NOT NULL,
        name                TEXT NOT NULL UNIQUE REFERENCES names (name),
        display_name        TEXT NOT NULL,
        socket_type         TEXT NOT NULL,
        origin_protocol     TEXT NOT NULL,
        basic_username      TEXT,
        basic_password_hash TEXT,
        created_at          INTEGER NOT NULL,
        UNIQUE (account, position),
        CHECK ((basic_username IS NULL) = (basic_password_hash IS NULL))
    ) STRICT;

    CREATE TABLE tunnels (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        socket     BLOB NOT NULL REFERENCES sockets (id) ON DELETE CASCADE,
        position   INTEGER NOT NULL,
        credential BLOB NOT NULL CHECK (length(credential) = 32),
        created_at INTEGER NOT NULL,
        UNIQUE (socket, position)
    ) STRICT;

    CREATE TABLE idempotency_keys (
        account      BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        key          TEXT NOT NULL,
        request_hash BLOB NOT NULL CHECK (length(request_hash) = 32),
        resource     BLOB NOT NULL CHECK (length(resource) = 16),
        answer       TEXT,
        created_at   INTEGER NOT NULL,
        PRIMARY KEY (account, key)
    ) STRICT;
    CREATE INDEX idempotency_keys_by_age ON idempotency_keys (created_at);
    ",
    "
    ALTER TABLE sockets ADD COLUMN port INTEGER CHECK (port BETWEEN 1 AND 65535);
    ALTER TABLE sockets ADD COLUMN settings TEXT NOT NULL DEFAULT '{}';
    CREATE UNIQUE INDEX sockets_by_port ON sockets (port) WHERE port IS NOT NULL;

    ALTER TABLE tunnels ADD COLUMN weight INTEGER NOT NULL DEFAULT 100;
    -- What a stock ssh client asks to have forwarded to mean this tunnel; different for each tunnel of an account.
    ALTER TABLE tunnels ADD COLUMN forward_port INTEGER NOT NULL DEFAULT 0;
    UPDATE tunnels SET forward_port = 1024 + rowid % 64000;

    CREATE TABLE ssh_keys (
        id          BLOB PRIMARY KEY CHECK (length(id) = 16),
        account     BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position    INTEGER NOT NULL,
        name        TEXT NOT NULL,
        public_key  TEXT NOT NULL,
        fingerprint TEXT NOT NULL,
        created_at  INTEGER NOT NULL,
        UNIQUE (account, position),
        UNIQUE (account, fingerprint)
    ) STRICT;
    ",
    "
    -- What lives as long as a connection does; left over after a crash, it is swept away at the next start.
    ALTER TABLE sockets ADD COLUMN temporary INTEGER NOT NULL DEFAULT 0 CHECK (temporary IN (0, 1));
    ALTER TABLE tunnels ADD COLUMN temporary INTEGER NOT NULL DEFAULT 0 CHECK (temporary IN (0, 1));

    -- Ports that sockets had, those first that were given back first: the last to be given out again.
    CREATE TABLE freed_ports (
        position INTEGER PRIMARY KEY AUTOINCREMENT,
        port     INTEGER NOT NULL UNIQUE
    ) STRICT;
    CREATE TRIGGER sockets_give_back_ports AFTER DELETE ON sockets WHEN old.port IS NOT NULL BEGIN
        DELETE FROM freed_ports WHERE port = old.port;
        INSERT INTO freed_ports (port) VALUES (old.port);
    END;
    ",
    "
    -- Who may have the name again when no socket has it, and the port that went with it unless somebody else had it since.
    ALTER TABLE names ADD COLUMN maker BLOB CHECK (length(maker) = 32);
    ALTER TABLE names ADD COLUMN port INTEGER CHECK (port BETWEEN 1 AND 65535);
    CREATE INDEX names_by_maker ON names (maker, taken_at) WHERE maker IS NOT NULL;
    CREATE INDEX names_by_port ON names (port) WHERE port IS NOT NULL;
    ",
    "
    -- An organisation has the id of the account that it was made with; that account is its owner and not in this table.
    CREATE TABLE members (
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        account      BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        role         TEXT NOT NULL,
        created_at   INTEGER NOT NULL,
        PRIMARY KEY (organisation, account)
    ) STRICT;
    CREATE INDEX members_by_account ON members (account);

    CREATE TABLE policies (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position     INTEGER NOT NULL,
        name         TEXT NOT NULL,
        document     TEXT NOT NULL,
        created_at   INTEGER NOT NULL,
        updated_at   INTEGER NOT NULL,
        UNIQUE (organisation, position),
        UNIQUE (organisation, name)
    ) STRICT;
    -- A policy without a socket here concerns all sockets of its organisation.
    CREATE TABLE policy_attachments (
        policy BLOB NOT NULL REFERENCES policies (id) ON DELETE CASCADE,
        socket BLOB REFERENCES sockets (id) ON DELETE CASCADE
    ) STRICT;
    CREATE UNIQUE INDEX policy_attachments_once ON policy_attachments (policy, coalesce(socket, x''));
    CREATE INDEX policy_attachments_by_socket ON policy_attachments (socket);

    CREATE TABLE providers (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position     INTEGER NOT NULL,
        name         TEXT NOT NULL,
        config       TEXT NOT NULL,
        -- Encrypted with a key that is not in the database.
        secret       BLOB NOT NULL,
        created_at   INTEGER NOT NULL,
        UNIQUE (organisation, position),
        UNIQUE (organisation, name)
    ) STRICT;

    CREATE TABLE person_sessions (
        id               BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation     BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        email            TEXT NOT NULL,
        person           TEXT NOT NULL,
        authenticated_at INTEGER NOT NULL,
        expires_at       INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX person_sessions_of_organisation ON person_sessions (organisation, email);
    CREATE INDEX person_sessions_by_end ON person_sessions (expires_at);

    CREATE TABLE service_tokens (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position     INTEGER NOT NULL,
        name         TEXT NOT NULL,
        hash         BLOB NOT NULL CHECK (length(hash) = 32),
        sockets      TEXT NOT NULL,
        created_at   INTEGER NOT NULL,
        expires_at   INTEGER,
        UNIQUE (organisation, position),
        UNIQUE (organisation, name)
    ) STRICT;

    -- The certificate authorities of organisations; made when they are first needed.
    CREATE TABLE authorities (
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        kind         TEXT NOT NULL,
        certificate  BLOB NOT NULL,
        -- Encrypted with a key that is not in the database.
        secret       BLOB NOT NULL,
        settings     TEXT NOT NULL DEFAULT '{}',
        created_at   INTEGER NOT NULL,
        PRIMARY KEY (organisation, kind)
    ) STRICT;
    -- Every certificate that an authority has issued.
    CREATE TABLE issued_certificates (
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        kind         TEXT NOT NULL,
        serial       BLOB NOT NULL,
        socket       BLOB CHECK (length(socket) = 16),
        subject      TEXT NOT NULL,
        not_before   INTEGER NOT NULL,
        not_after    INTEGER NOT NULL,
        PRIMARY KEY (organisation, kind, serial)
    ) STRICT;
    CREATE INDEX issued_certificates_by_end ON issued_certificates (not_after);
    ",
    "
    -- Nobody was ever put into this one.
    DROP TABLE members;
    CREATE TABLE members (
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        account      BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position     INTEGER NOT NULL,
        role         TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner')),
        created_at   INTEGER NOT NULL,
        PRIMARY KEY (organisation, account),
        UNIQUE (organisation, position)
    ) STRICT;
    CREATE INDEX members_by_account ON members (account);

    CREATE TABLE invitations (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position     INTEGER NOT NULL,
        email        TEXT NOT NULL,
        email_key    TEXT NOT NULL,
        role         TEXT NOT NULL CHECK (role IN ('viewer', 'member', 'admin', 'owner')),
        hash         BLOB NOT NULL UNIQUE CHECK (length(hash) = 32),
        invited_by   BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        created_at   INTEGER NOT NULL,
        expires_at   INTEGER NOT NULL,
        UNIQUE (organisation, position),
        UNIQUE (organisation, email_key)
    ) STRICT;
    CREATE INDEX invitations_by_address ON invitations (email_key);
    CREATE INDEX invitations_by_end ON invitations (expires_at);

    -- What the account's organisation is called; as the account, when it was given no name.
    ALTER TABLE accounts ADD COLUMN organisation_name TEXT;

    -- A token is for one organisation.
    ALTER TABLE tokens ADD COLUMN organisation BLOB REFERENCES accounts (id) ON DELETE CASCADE;
    UPDATE tokens SET organisation = account;
    CREATE INDEX tokens_by_organisation ON tokens (organisation, account);
    ",
    "
    -- Persons whose passwords this installation keeps, for the provider of kind local of an organisation.
    CREATE TABLE persons (
        id            BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation  BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        provider      BLOB NOT NULL REFERENCES providers (id) ON DELETE CASCADE,
        position      INTEGER NOT NULL,
        email         TEXT NOT NULL,
        name          TEXT,
        member_of     TEXT NOT NULL,
        password_hash TEXT,
        verified_at   INTEGER,
        disabled      INTEGER NOT NULL DEFAULT 0 CHECK (disabled IN (0, 1)),
        -- Encrypted with a key that is not in the database.
        totp_secret   TEXT,
        totp_step     INTEGER NOT NULL DEFAULT 0,
        -- When the password or the codes were last changed: a login that began before does not go on.
        changed_at    INTEGER NOT NULL,
        last_login_at INTEGER,
        created_at    INTEGER NOT NULL,
        UNIQUE (organisation, position),
        UNIQUE (organisation, email)
    ) STRICT;
    CREATE TABLE person_recovery_codes (
        person BLOB NOT NULL REFERENCES persons (id) ON DELETE CASCADE,
        hash   BLOB NOT NULL CHECK (length(hash) = 32),
        PRIMARY KEY (person, hash)
    ) STRICT;
    -- Links with which a person sets a password.
    CREATE TABLE person_links (
        hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
        person     BLOB NOT NULL REFERENCES persons (id) ON DELETE CASCADE,
        expires_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX person_links_of_person ON person_links (person, expires_at);
    CREATE INDEX person_links_by_end ON person_links (expires_at);

    -- What is good once, and has been used, for as long as it would be good.
    CREATE TABLE used_once (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        expires_at   INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX used_once_of_organisation ON used_once (organisation, expires_at);
    CREATE INDEX used_once_by_end ON used_once (expires_at);
    ",
    "
    -- What a service token reaches at most, as JSON; and when the last of its client certificates ends.
    ALTER TABLE service_tokens ADD COLUMN scope TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE service_tokens ADD COLUMN certified_until INTEGER;
    ",
    "
    -- The edges that have joined.
    CREATE TABLE edges (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        name       TEXT NOT NULL UNIQUE,
        region     TEXT NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    -- With each of these one edge may join, or has.
    CREATE TABLE edge_tokens (
        hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
        name       TEXT,
        region     TEXT,
        created_at INTEGER NOT NULL,
        expires_at INTEGER NOT NULL,
        used_by    TEXT
    ) STRICT;
    CREATE INDEX edge_tokens_by_end ON edge_tokens (expires_at);
    -- Whose the installation is. When that account is gone it falls to nobody: hence no reference.
    CREATE TABLE installation_owner (
        account BLOB PRIMARY KEY CHECK (length(account) = 16)
    ) STRICT;
    INSERT INTO installation_owner (account)
        SELECT id FROM accounts WHERE email_key <> '' ORDER BY created_at, id LIMIT 1;
    ",
    "
    -- An edge that is to be emptied: until when what runs there may go on.
    ALTER TABLE edges ADD COLUMN drain_until INTEGER;
    ",
    "
    -- The controls that run: each counts on for as long as it lives, which the others see without comparing clocks.
    CREATE TABLE controls (
        id        BLOB PRIMARY KEY CHECK (length(id) = 16),
        beat      INTEGER NOT NULL,
        -- Where edges find it, several by commas; empty where none come.
        addresses TEXT NOT NULL,
        program   TEXT NOT NULL
    ) STRICT;
    -- Who keeps what is temporary.
    ALTER TABLE sockets ADD COLUMN holder BLOB CHECK (length(holder) = 16);
    ALTER TABLE tunnels ADD COLUMN holder BLOB CHECK (length(holder) = 16);
    -- The keys that all controls have, encrypted with one that is not in the database.
    CREATE TABLE installation_keys (
        name   TEXT PRIMARY KEY,
        sealed TEXT NOT NULL
    ) STRICT;
    -- Logins of programs that show a code, and wait for a person who types it.
    CREATE TABLE device_logins (
        code         TEXT PRIMARY KEY,
        device       BLOB NOT NULL UNIQUE CHECK (length(device) = 32),
        organisation BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        socket       BLOB NOT NULL CHECK (length(socket) = 16),
        client       TEXT NOT NULL,
        expires_at   INTEGER NOT NULL,
        answer       TEXT CHECK (answer IN ('agreed', 'denied')),
        session      BLOB CHECK (length(session) = 16)
    ) STRICT;
    CREATE INDEX device_logins_of_organisation ON device_logins (organisation, expires_at);
    CREATE INDEX device_logins_by_end ON device_logins (expires_at);
    ",
    "
    -- Addresses that edges dial themselves.
    CREATE TABLE direct_origins (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        socket     BLOB NOT NULL REFERENCES sockets (id) ON DELETE CASCADE,
        position   INTEGER NOT NULL,
        address    TEXT NOT NULL,
        region     TEXT,
        weight     INTEGER NOT NULL,
        -- How it proves who it is, as JSON.
        tls        TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (socket, position),
        UNIQUE (socket, address)
    ) STRICT;
    ",
    "
    -- Which edge has joined with a token: its name may be another's by now.
    ALTER TABLE edge_tokens ADD COLUMN used_by_id BLOB CHECK (length(used_by_id) = 16);
    -- Of edges that are there, where no other one can have been meant.
    UPDATE edge_tokens SET used_by_id = (
        SELECT id FROM edges WHERE edges.name = edge_tokens.used_by
            AND edges.created_at BETWEEN edge_tokens.created_at AND edge_tokens.expires_at
            AND 1 = (
                SELECT count(*) FROM edge_tokens AS other WHERE other.used_by = edges.name
                    AND edges.created_at BETWEEN other.created_at AND other.expires_at
            )
    );
    ",
    "
    -- Which paths of its socket an origin serves, and what stands in the place of the prefix when it is asked.
    ALTER TABLE tunnels ADD COLUMN path TEXT NOT NULL DEFAULT '/';
    ALTER TABLE tunnels ADD COLUMN rewrite_path TEXT;
    ALTER TABLE direct_origins ADD COLUMN path TEXT NOT NULL DEFAULT '/';
    ALTER TABLE direct_origins ADD COLUMN rewrite_path TEXT;
    ",
    "
    -- Codes of an authenticator beside the password of an account: the secret is encrypted with a key that is not in the database.
    ALTER TABLE accounts ADD COLUMN totp_secret TEXT;
    ALTER TABLE accounts ADD COLUMN totp_step INTEGER NOT NULL DEFAULT 0;
    -- Grows with every change of the password or the codes: a login that began before does not go on.
    ALTER TABLE accounts ADD COLUMN access_revision INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE account_recovery_codes (
        account BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        hash    BLOB NOT NULL CHECK (length(hash) = 32),
        PRIMARY KEY (account, hash)
    ) STRICT;
    -- Codes with which the owner of an account sets another password, and by whom they were made.
    CREATE TABLE account_resets (
        hash       BLOB PRIMARY KEY CHECK (length(hash) = 32),
        account    BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        made_by    TEXT NOT NULL CHECK (made_by IN ('self', 'owner', 'operator')),
        expires_at INTEGER NOT NULL
    ) STRICT;
    CREATE INDEX account_resets_of_account ON account_resets (account, expires_at);
    CREATE INDEX account_resets_by_end ON account_resets (expires_at);
    -- When a login was last used, from where and by which program.
    ALTER TABLE login_sessions ADD COLUMN last_used_at INTEGER;
    ALTER TABLE login_sessions ADD COLUMN client_address TEXT;
    ALTER TABLE login_sessions ADD COLUMN client_program TEXT;
    -- With what the first account is made, encrypted with a key that is not in the database; one for all controls.
    CREATE TABLE setup_token (
        hash   BLOB PRIMARY KEY CHECK (length(hash) = 32),
        sealed TEXT NOT NULL
    ) STRICT;
    ",
    // Tokens of providers, and the times of checks. Earlier logins end, because they lack groups that could not be
    // stored.
    "
    DELETE FROM person_sessions;
    CREATE TABLE provider_sessions (
        session      BLOB PRIMARY KEY REFERENCES person_sessions (id) ON DELETE CASCADE,
        organisation BLOB NOT NULL,
        provider     BLOB NOT NULL REFERENCES providers (id) ON DELETE CASCADE,
        subject      TEXT NOT NULL,
        sid          TEXT,
        tokens       BLOB,
        check_at     INTEGER,
        failures     INTEGER NOT NULL DEFAULT 0
    ) STRICT;
    CREATE INDEX provider_sessions_by_check ON provider_sessions (check_at);
    CREATE INDEX provider_sessions_of_provider ON provider_sessions (provider, subject);
    CREATE INDEX provider_sessions_by_sid ON provider_sessions (provider, sid);
    ALTER TABLE service_tokens ADD COLUMN email TEXT;
    ALTER TABLE service_tokens ADD COLUMN display_name TEXT;
    ",
    "
    -- What the names of sockets and tunnels are compared by: one organisation has no two that are the same. Rows without it
    -- get it when the database is opened (`socket_names.rs`).
    ALTER TABLE sockets ADD COLUMN name_key TEXT;
    CREATE UNIQUE INDEX sockets_by_name_key ON sockets (account, name_key);
    ALTER TABLE tunnels ADD COLUMN display_name TEXT;
    ALTER TABLE tunnels ADD COLUMN name_key TEXT;
    CREATE INDEX tunnels_by_name_key ON tunnels (name_key);
    ",
    "
    -- Domains of organisations. Several may add a name; one at most has it verified.
    CREATE TABLE domains (
        id            BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation  BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        position      INTEGER NOT NULL,
        name          TEXT NOT NULL,
        socket        BLOB REFERENCES sockets (id) ON DELETE SET NULL,
        verified_at   INTEGER,
        missing_since INTEGER,
        checked_at    INTEGER,
        problem       TEXT,
        check_at      INTEGER NOT NULL,
        created_at    INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX domains_of_organisation ON domains (organisation, name);
    CREATE UNIQUE INDEX domains_verified ON domains (name) WHERE verified_at IS NOT NULL;
    CREATE INDEX domains_by_check ON domains (check_at);
    CREATE INDEX domains_of_socket ON domains (socket);
    -- Which organisation had a name verified last.
    CREATE TABLE former_domains (
        name         TEXT PRIMARY KEY,
        organisation BLOB NOT NULL
    ) STRICT;
    CREATE TRIGGER domains_deleted AFTER DELETE ON domains WHEN OLD.verified_at IS NOT NULL BEGIN
        DELETE FROM former_domains WHERE name = OLD.name;
        INSERT INTO former_domains (name, organisation) VALUES (OLD.name, OLD.organisation);
    END;
    -- Certificates for names, one for each first name, with the lease of the process that works at its order.
    CREATE TABLE certificates (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB REFERENCES accounts (id) ON DELETE CASCADE,
        name         TEXT NOT NULL,
        names        TEXT NOT NULL,
        source       TEXT NOT NULL CHECK (source IN ('acme', 'imported')),
        chain        TEXT,
        sealed_key   TEXT,
        not_before   INTEGER,
        not_after    INTEGER,
        order_key    TEXT,
        order_url    TEXT,
        order_directory TEXT,
        schedule     TEXT NOT NULL DEFAULT '',
        due_at       INTEGER NOT NULL,
        problem      TEXT,
        holder       BLOB,
        held_until   INTEGER,
        fence        INTEGER NOT NULL DEFAULT 0,
        created_at   INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX certificates_by_name ON certificates (name);
    CREATE INDEX certificates_by_due ON certificates (due_at);
    -- The accounts at ACME servers; their keys are encrypted with a key that is not in the database.
    CREATE TABLE acme_accounts (
        directory  TEXT PRIMARY KEY,
        sealed     TEXT NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE acme_challenges (
        id                BLOB PRIMARY KEY CHECK (length(id) = 16),
        name              TEXT NOT NULL,
        kind              TEXT NOT NULL,
        token             TEXT NOT NULL,
        key_authorization TEXT NOT NULL,
        expires_at        INTEGER NOT NULL
    ) STRICT;
    -- Zones of the name server; the secrets of their keys are encrypted with a key that is not in the database.
    CREATE TABLE zones (
        id           BLOB PRIMARY KEY CHECK (length(id) = 16),
        organisation BLOB REFERENCES accounts (id) ON DELETE CASCADE,
        apex         TEXT NOT NULL,
        serial       INTEGER NOT NULL,
        created_at   INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX zones_by_apex ON zones (apex);
    CREATE TABLE zone_records (
        id          BLOB PRIMARY KEY CHECK (length(id) = 16),
        zone        BLOB NOT NULL REFERENCES zones (id) ON DELETE CASCADE,
        position    INTEGER NOT NULL,
        name        TEXT NOT NULL,
        record_type TEXT NOT NULL,
        ttl         INTEGER NOT NULL,
        value       TEXT NOT NULL
    ) STRICT;
    CREATE INDEX records_of_zone ON zone_records (zone, position);
    CREATE TABLE zone_keys (
        zone     BLOB NOT NULL REFERENCES zones (id) ON DELETE CASCADE,
        position INTEGER NOT NULL,
        key      TEXT NOT NULL,
        PRIMARY KEY (zone, position)
    ) STRICT;
    ",
    "
    -- Issued certificates of names that no row of certificates has any more, until their end.
    CREATE TABLE former_certificates (
        name         TEXT PRIMARY KEY,
        organisation BLOB REFERENCES accounts (id) ON DELETE CASCADE,
        names        TEXT NOT NULL,
        chain        TEXT NOT NULL,
        sealed_key   TEXT NOT NULL,
        not_before   INTEGER NOT NULL,
        not_after    INTEGER NOT NULL,
        schedule     TEXT NOT NULL
    ) STRICT;
    CREATE INDEX former_certificates_by_end ON former_certificates (not_after);
    ",
    "
    -- What origins can carry, and which control leads in what only one of them does.
    ALTER TABLE tunnels ADD COLUMN capacity TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE direct_origins ADD COLUMN capacity TEXT NOT NULL DEFAULT '{}';
    CREATE TABLE leaders (
        task   TEXT PRIMARY KEY,
        holder BLOB NOT NULL,
        term   INTEGER NOT NULL,
        beat   INTEGER NOT NULL
    ) STRICT;
    ",
    "
    -- What a leader leaves to the next one, as JSON.
    ALTER TABLE leaders ADD COLUMN legacy TEXT NOT NULL DEFAULT '';
    ",
    "
    -- Prefixes that edges announce, their neighbours, and orders about edges, as JSON. Passwords of neighbours are
    -- encrypted with a key that is not in the database.
    CREATE TABLE anycast_items (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        kind       TEXT NOT NULL CHECK (kind IN ('prefix', 'peer', 'order')),
        name       TEXT NOT NULL,
        content    TEXT NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    CREATE UNIQUE INDEX anycast_items_by_name ON anycast_items (kind, name);
    ",
    "
    -- Where clients land. Rows without requests have only a round trip.
    CREATE TABLE catchment (
        prefix        TEXT NOT NULL,
        site          TEXT NOT NULL,
        source        TEXT NOT NULL CHECK (source IN ('clients', 'ping', 'chaos', 'atlas')),
        as_number     INTEGER,
        country       TEXT,
        round_trip_us INTEGER,
        requests      INTEGER NOT NULL,
        seen          INTEGER NOT NULL,
        PRIMARY KEY (prefix, site, source)
    ) STRICT;
    CREATE INDEX catchment_by_age ON catchment (seen);
    -- Measurements of it, with what their control says of them as JSON.
    CREATE TABLE catchment_measurements (
        id         TEXT PRIMARY KEY,
        started_at INTEGER NOT NULL,
        beat_at    INTEGER NOT NULL,
        is_done    INTEGER NOT NULL,
        state      TEXT NOT NULL
    ) STRICT;
    -- Which address of each network is pinged, and which networks want no pings.
    CREATE TABLE catchment_targets (
        prefix  TEXT PRIMARY KEY,
        address TEXT NOT NULL
    ) STRICT;
    CREATE TABLE catchment_opt_outs (
        prefix TEXT PRIMARY KEY
    ) STRICT;
    ",
    "
    -- What an operator has set for the name server, as JSON: dials and shares of regions.
    CREATE TABLE dns_settings (
        id      INTEGER PRIMARY KEY,
        content TEXT NOT NULL
    ) STRICT;
    ",
    "
    -- The labels of owners, as JSON with sorted keys.
    ALTER TABLE sockets ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE tunnels ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
    ALTER TABLE policies ADD COLUMN labels TEXT NOT NULL DEFAULT '{}';
    ",
    "
    -- Addresses that edges share by slices of ports, with their tags, and the leases of slices, as JSON.
    CREATE TABLE egress_addresses (
        address    TEXT PRIMARY KEY,
        content    TEXT NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE egress_leases (
        address TEXT NOT NULL REFERENCES egress_addresses (address) ON DELETE CASCADE,
        slice   INTEGER NOT NULL,
        content TEXT NOT NULL,
        PRIMARY KEY (address, slice)
    ) STRICT;
    ",
    "
    -- The balancers of sites, as JSON. A site is a region.
    CREATE TABLE balancers (
        site       TEXT PRIMARY KEY,
        content    TEXT NOT NULL,
        created_at INTEGER NOT NULL
    ) STRICT;
    -- The numbers by which balancers know edges, from 1.
    ALTER TABLE edges ADD COLUMN server INTEGER NOT NULL DEFAULT 0;
    UPDATE edges SET server = (SELECT count(*) FROM edges AS others WHERE others.id <= edges.id);
    CREATE UNIQUE INDEX edges_by_server ON edges (server);
    ",
    "
    -- Networks of machines. As JSON: the ranges, the addresses at which the search for a free one begins, and what each
    -- machine has.
    CREATE TABLE networks (
        id          BLOB PRIMARY KEY CHECK (length(id) = 16),
        account     BLOB NOT NULL REFERENCES accounts (id) ON DELETE CASCADE,
        name        TEXT NOT NULL,
        ranges      TEXT NOT NULL,
        next_leases TEXT NOT NULL,
        policy      TEXT,
        created_at  INTEGER NOT NULL,
        UNIQUE (account, name)
    ) STRICT;
    CREATE TABLE network_machines (
        id         BLOB PRIMARY KEY CHECK (length(id) = 16),
        network    BLOB NOT NULL REFERENCES networks (id) ON DELETE CASCADE,
        name       TEXT NOT NULL,
        credential BLOB NOT NULL CHECK (length(credential) = 32),
        content    TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        UNIQUE (network, name)
    ) STRICT;
    ",
];

/// Number of steps after which the write-ahead log is merged into the database.
const STEPS_TO_A_CHECKPOINT: i64 = 8;

/// The version that this program writes.
pub(crate) fn newest() -> i64 {
    MIGRATIONS.len() as i64
}

/// The steps from this version to the newest.
pub(crate) fn after(found: i64) -> impl Iterator<Item = &'static str> {
    MIGRATIONS.iter().copied().skip(usize::try_from(found).unwrap_or(0))
}

/// Migrates the SQLite database to the newest version, one transaction per step.
pub(crate) async fn run(writer: &SqlitePool) -> Result<(), StoreError> {
    let found: i64 = sqlx::query_scalar("PRAGMA user_version").fetch_one(writer).await?;
    let sqlite = writer;
    let writer = DbPool::Sqlite(writer.clone());
    for (version, sql) in (1..).zip(MIGRATIONS.iter().copied()).skip(usize::try_from(found).unwrap_or(0)) {
        let mut write = Write::begin(&writer).await?;
        write.sql().script(sql.to_owned()).await?;
        // A pragma takes no bound values; both are integers of this crate.
        let mark = format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {version}");
        write.sql().script(mark).await?;
        write.commit().await?;
        tracing::debug!(version, "database migrated");
        // The log of many steps would need more room than the database.
        if version % STEPS_TO_A_CHECKPOINT == 0 {
            sqlx::query("PRAGMA wal_checkpoint(TRUNCATE)").execute(sqlite).await?;
        }
    }
    log_migration(found);
    Ok(())
}

/// Logs the migration of a database from this version; 0 for a new one.
pub(crate) fn log_migration(found: i64) {
    let version = newest();
    match found {
        0 => tracing::info!(version, "database created"),
        _ if found < version => tracing::info!(from = found, version, "database migrated"),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use sqlx::sqlite::SqlitePoolOptions;

    use super::*;

    #[tokio::test]
    async fn join_tokens_get_the_ids_of_edges_that_can_be_meant_and_no_others() {
        let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.unwrap();
        let at = MIGRATIONS.iter().position(|text| text.contains("used_by_id")).unwrap();
        for text in &MIGRATIONS[..at] {
            sqlx::raw_sql(*text).execute(&pool).await.unwrap();
        }
        sqlx::raw_sql(sqlx::AssertSqlSafe(format!("PRAGMA user_version = {at}"))).execute(&pool).await.unwrap();
        // `eu-1` exists, and was another edge before; which of two tokens each `us-1` has used is unknown.
        let before = "
            INSERT INTO edges (id, name, region, created_at) VALUES
                (x'01010101010101010101010101010101', 'eu-1', 'eu', 150),
                (x'02020202020202020202020202020202', 'us-1', 'us', 150);
            INSERT INTO edge_tokens (hash, created_at, expires_at, used_by) VALUES
                (CAST(zeroblob(31) || x'01' AS BLOB), 10, 70, 'eu-1'),
                (CAST(zeroblob(31) || x'02' AS BLOB), 100, 160, 'eu-1'),
                (CAST(zeroblob(31) || x'03' AS BLOB), 100, 160, 'us-1'),
                (CAST(zeroblob(31) || x'04' AS BLOB), 110, 170, 'us-1'),
                (CAST(zeroblob(31) || x'05' AS BLOB), 100, 160, NULL);
        ";
        sqlx::raw_sql(before).execute(&pool).await.unwrap();
        run(&pool).await.unwrap();
        let ids: Vec<Option<Vec<u8>>> =
            sqlx::query_scalar("SELECT used_by_id FROM edge_tokens ORDER BY hash").fetch_all(&pool).await.unwrap();
        assert_eq!(ids, [None, Some(vec![1; 16]), None, None, None]);
    }
}
