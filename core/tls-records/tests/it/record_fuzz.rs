//! The body of the fuzzer of records: valid and invalid records of a peer, in any order and in pieces.
//!
//! A model predicts the result of each record that the peer sealed, where the model can.

use std::sync::{Arc, OnceLock};

use rustls::{
    AlertDescription, ClientConfig, RootCertStore, ServerConfig,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer},
};
use sallyport_tls_records::{
    ContentType, Established, HEADER_BYTES, Handshake, MAX_PLAIN_BYTES, OVERHEAD_BYTES, Received, RecordLayer, Step,
};

/// What the first byte of an input chooses, and what the first byte of each of its steps does.
pub(crate) mod code {
    /// The client is tested; without the bit, the server.
    pub(crate) const CLIENT: u8 = 1;
    /// The tested side changes its keys after few records.
    pub(crate) const FEW_RECORDS: u8 = 2;

    /// The peer seals an inner plaintext: its length (one byte), then the plaintext.
    pub(crate) const INNER: u8 = 0;
    /// The peer seals data: their length and that of the padding (two bytes each).
    pub(crate) const DATA: u8 = 1;
    /// Bytes that the peer did not seal: their length (one byte), then the bytes.
    pub(crate) const RAW: u8 = 2;
    /// The peer's next record is changed at this place (one byte).
    pub(crate) const CHANGE: u8 = 3;
    /// The peer changes its key, and asks for a change.
    pub(crate) const PEER_UPDATES: u8 = 4;
    /// The tested side sends data: their length (two bytes).
    pub(crate) const SEND: u8 = 5;
    /// The tested side changes its key, and asks for a change.
    pub(crate) const UPDATE: u8 = 6;
    /// The tested side sends nothing more.
    pub(crate) const CLOSE: u8 = 7;
    /// Records come in pieces of this size (one byte) from now on.
    pub(crate) const PIECES: u8 = 8;
    pub(crate) const COUNT: u8 = 9;
}

/// The longest record that the peer makes: more than any that it may.
const MAX_INNER_BYTES: usize = 17_000;

struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (byte, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*byte)
    }

    fn length(&mut self) -> Option<usize> {
        Some(usize::from(u16::from_be_bytes([self.byte()?, self.byte()?])))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::from(self.byte()?).min(self.0.len());
        let (bytes, rest) = self.0.split_at(len);
        self.0 = rest;
        Some(bytes)
    }
}

/// The expected result of a record.
#[derive(Debug)]
enum Expected {
    Data(Vec<u8>),
    Nothing,
    Refused(AlertDescription),
    /// The model cannot predict the result.
    Any,
}

struct Run {
    tested: RecordLayer,
    peer: RecordLayer,
    /// Received bytes that the tested side has not opened.
    incoming: Vec<u8>,
    pieces: usize,
    /// Changes the peer's next record here.
    change_at: Option<usize>,
    /// Whether the model knows the state of the tested side.
    is_known: bool,
    is_closed: bool,
    records_without_data: u32,
    /// Records to the peer in a row without data.
    sent_without_data: u32,
}

/// Runs one input.
pub(crate) fn tls_records(data: &[u8]) {
    let mut input = Input(data);
    let Some(flags) = input.byte() else { return };
    let (client, server) = connect();
    let (tested, peer) = if flags & code::CLIENT != 0 { (client, server) } else { (server, client) };
    let mut run = Run {
        tested: tested.records,
        peer: peer.records,
        incoming: tested.received,
        pieces: usize::MAX,
        change_at: None,
        is_known: true,
        is_closed: false,
        records_without_data: 0,
        sent_without_data: 0,
    };
    if flags & code::FEW_RECORDS != 0 {
        run.tested.set_max_records(5);
    }
    let mut for_peer = peer.received;
    run.peer_opens(&mut for_peer);
    // Session tickets of the server.
    let mut goes_on = run.open(&Expected::Any);
    while goes_on.is_some() {
        goes_on = run.step(&mut input);
    }
}

impl Run {
    /// One step; `None` at the end.
    fn step(&mut self, input: &mut Input<'_>) -> Option<()> {
        // The peer also limits the records without data.
        if self.sent_without_data > 20 {
            self.send(1);
        }
        match input.byte()? % code::COUNT {
            code::INNER => {
                let inner = input.bytes()?;
                let (last, content) = inner.split_last()?;
                let expected = self.expect(inner);
                let record = seal(&mut self.peer, ContentType(*last), content);
                self.deliver(record, expected)
            }
            code::DATA => {
                let (len, padding) = (input.length()? % MAX_INNER_BYTES, input.length()? % MAX_INNER_BYTES);
                let mut inner = vec![b'x'; len];
                inner.push(ContentType::APPLICATION_DATA.0);
                inner.resize((len + 1 + padding).min(MAX_INNER_BYTES), 0);
                let expected = self.expect(&inner);
                let (last, content) = inner.split_last()?;
                let record = seal(&mut self.peer, ContentType(*last), content);
                self.deliver(record, expected)
            }
            code::RAW => {
                let bytes = input.bytes()?;
                self.is_known &= bytes.is_empty();
                self.incoming.extend_from_slice(bytes);
                self.open(&Expected::Any)
            }
            code::CHANGE => {
                self.change_at = Some(usize::from(input.byte()?));
                Some(())
            }
            code::PEER_UPDATES => {
                self.peer.request_key_update().unwrap();
                let record = self.peer.take_outgoing();
                let expected = self.nothing();
                self.deliver(record, expected)
            }
            code::SEND => {
                let len = input.length()? % (MAX_PLAIN_BYTES + 1);
                self.send(len);
                Some(())
            }
            code::UPDATE => {
                self.tested.request_key_update().unwrap();
                self.answer()
            }
            code::CLOSE => {
                self.tested.close().unwrap();
                self.answer()?;
                self.is_closed = true;
                Some(())
            }
            _ => {
                self.pieces = usize::from(input.byte()?).max(1);
                Some(())
            }
        }
    }

    /// A record without data, of which only a limited number in a row is accepted.
    fn nothing(&self) -> Expected {
        if self.is_known && self.records_without_data < 30 { Expected::Nothing } else { Expected::Any }
    }

    fn expect(&mut self, inner: &[u8]) -> Expected {
        if !self.is_known {
            return Expected::Any;
        }
        if inner.len() > MAX_PLAIN_BYTES + 1 {
            return Expected::Refused(AlertDescription::RecordOverflow);
        }
        let Some(end) = inner.iter().rposition(|byte| *byte != 0) else {
            return Expected::Refused(AlertDescription::UnexpectedMessage);
        };
        match ContentType(inner[end]) {
            ContentType::APPLICATION_DATA if end > 0 => Expected::Data(inner[..end].to_vec()),
            ContentType::APPLICATION_DATA => self.nothing(),
            ContentType::ALERT | ContentType::HANDSHAKE if end == 0 => {
                Expected::Refused(AlertDescription::UnexpectedMessage)
            }
            ContentType::ALERT => Expected::Any,
            ContentType::HANDSHAKE => {
                // It may be a part of a message, or change the key that the peer seals with.
                self.is_known = false;
                Expected::Any
            }
            _ => Expected::Refused(AlertDescription::UnexpectedMessage),
        }
    }

    /// Delivers a record of the peer to the tested side.
    fn deliver(&mut self, mut record: Vec<u8>, mut expected: Expected) -> Option<()> {
        if let Some(at) = self.change_at.take() {
            // Behind the header, or in the version, which is authenticated only.
            let at = if at == 0 { 1 } else { HEADER_BYTES + (at - 1) % (record.len() - HEADER_BYTES) };
            record[at] ^= 0x10;
            if self.is_known || !matches!(expected, Expected::Any) {
                let is_too_long = record.len() > HEADER_BYTES + MAX_PLAIN_BYTES + 256;
                expected = Expected::Refused(if is_too_long {
                    AlertDescription::RecordOverflow
                } else {
                    AlertDescription::BadRecordMac
                });
            }
        }
        let mut rest = &record[..];
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(self.pieces.min(rest.len()));
            self.incoming.extend_from_slice(piece);
            rest = behind;
            self.open(&expected)?;
        }
        Some(())
    }

    /// Opens all complete records; `None` when the connection is over.
    fn open(&mut self, expected: &Expected) -> Option<()> {
        loop {
            let opened = match self.tested.open(&mut self.incoming) {
                Ok(None) => return Some(()),
                Ok(Some(opened)) => opened,
                Err(error) => {
                    match expected {
                        Expected::Refused(alert) => assert_eq!(error.alert(), *alert, "{error}"),
                        Expected::Any => {}
                        _ => panic!("{error}, where {expected:?} is expected"),
                    }
                    self.tested.abort(&error).unwrap();
                    let mut alert = self.tested.take_outgoing();
                    let says_nothing = error.is_from_peer() || self.is_closed;
                    assert!(!says_nothing || alert.is_empty(), "nothing follows the end");
                    if !says_nothing {
                        let received = loop {
                            match self.peer.open(&mut alert) {
                                Ok(Some(opened)) => drop(alert.drain(..opened.taken)),
                                Ok(None) => panic!("the alert is missing"),
                                Err(received) => break received,
                            }
                        };
                        assert!(received.is_from_peer() && received.alert() == error.alert(), "{received}");
                    }
                    return None;
                }
            };
            assert!(opened.taken <= self.incoming.len() && opened.taken >= HEADER_BYTES);
            match (&opened.received, expected) {
                (Received::Data(range), Expected::Data(data)) => assert_eq!(&self.incoming[range.clone()], data),
                (Received::Nothing, Expected::Nothing) | (_, Expected::Any) => {}
                (received, _) => panic!("{received:?}, where {expected:?} is expected"),
            }
            if let Received::Data(range) = &opened.received {
                assert!(range.start == HEADER_BYTES && range.end <= opened.taken);
                assert!(!range.is_empty() && range.len() <= MAX_PLAIN_BYTES);
                self.records_without_data = 0;
            } else {
                self.records_without_data += 1;
            }
            let is_over = opened.received == Received::Close;
            self.incoming.drain(..opened.taken);
            self.answer()?;
            if is_over {
                return None;
            }
        }
    }

    /// Delivers to the peer what the tested side has to send by itself, and delivers the peer's answers.
    fn answer(&mut self) -> Option<()> {
        let mut outgoing = self.tested.take_outgoing();
        assert!(!self.is_closed || outgoing.is_empty(), "nothing follows the end");
        self.peer_opens(&mut outgoing);
        let answers = self.peer.take_outgoing();
        if answers.is_empty() {
            return Some(());
        }
        let expected = if self.incoming.is_empty() { self.nothing() } else { Expected::Any };
        self.incoming.extend_from_slice(&answers);
        // The answer to an update is an update, which asks for nothing.
        self.open(&expected)
    }

    /// The peer understands everything of the tested side.
    fn peer_opens(&mut self, outgoing: &mut [u8]) -> Vec<u8> {
        let (mut rest, mut data) = (outgoing, Vec::new());
        while !rest.is_empty() {
            let opened = self.peer.open(rest).unwrap().expect("records are whole");
            match opened.received {
                Received::Data(range) => {
                    data.extend_from_slice(&rest[range]);
                    self.sent_without_data = 0;
                }
                _ => self.sent_without_data += 1,
            }
            rest = &mut rest[opened.taken..];
        }
        data
    }

    fn send(&mut self, len: usize) {
        if self.is_closed {
            return;
        }
        self.tested.prepare(1).unwrap();
        let mut bytes = self.tested.take_outgoing();
        bytes.extend(seal(&mut self.tested, ContentType::APPLICATION_DATA, &vec![b'y'; len]));
        assert_eq!(self.peer_opens(&mut bytes), vec![b'y'; len]);
    }
}

fn seal(records: &mut RecordLayer, content_type: ContentType, content: &[u8]) -> Vec<u8> {
    let mut record = vec![0; content.len() + OVERHEAD_BYTES];
    record[HEADER_BYTES..][..content.len()].copy_from_slice(content);
    records.seal(content_type, &mut record, content.len()).unwrap();
    record
}

fn configs() -> &'static (Arc<ClientConfig>, Arc<ServerConfig>) {
    static CONFIGS: OnceLock<(Arc<ClientConfig>, Arc<ServerConfig>)> = OnceLock::new();
    CONFIGS.get_or_init(|| {
        let made = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
        let certificate = CertificateDer::from(made.cert.der().to_vec());
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(aws_lc_rs::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certificate.clone()], key)
            .unwrap();
        server.enable_secret_extraction = true;
        let mut roots = RootCertStore::empty();
        roots.add(certificate).unwrap();
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        (Arc::new(client), Arc::new(server))
    })
}

/// Both ends of a connection: the client first.
fn connect() -> (Established, Established) {
    let (client, server) = configs();
    let mut client = Handshake::client(client.clone(), "localhost".try_into().unwrap()).unwrap();
    let mut server = Handshake::server(server.clone()).unwrap();
    loop {
        let (near, far) = (carry(&mut client, &mut server), carry(&mut server, &mut client));
        if (near, far) == (Step::Done, Step::Done) {
            return (client.finish().unwrap(), server.finish().unwrap());
        }
    }
}

/// Carries all that one end has to send to the other.
fn carry(from: &mut Handshake, to: &mut Handshake) -> Step {
    loop {
        let step = from.advance().unwrap();
        to.read_buffer().unwrap().append(from.outgoing());
        if step != Step::Send {
            return step;
        }
    }
}
