//! Drives a server over bytes in pieces, and responds to each request at once.

use http::{HeaderMap, StatusCode};
use sallyport_http::RequestRefusal;
use sallyport_http1::{
    Piece,
    server::{Config, Phase, ResponseHead, Server},
};

/// A server with the results for the bytes so far.
#[derive(Debug)]
pub(crate) struct Driven {
    pub(crate) server: Server,
    fed: usize,
    /// One line for each request, body and trailer section.
    pub(crate) log: Vec<String>,
    pub(crate) refusal: Option<RequestRefusal>,
    pub(crate) is_refused_in_body: bool,
    is_served: bool,
}

impl Driven {
    pub(crate) fn new(config: Config) -> Self {
        Self {
            server: Server::new(config),
            fed: 0,
            log: Vec::new(),
            refusal: None,
            is_refused_in_body: false,
            is_served: false,
        }
    }

    /// Feeds these bytes at once to a server with default limits.
    pub(crate) fn of(bytes: impl AsRef<[u8]>) -> Self {
        let mut driven = Self::new(Config::default());
        driven.feed(bytes.as_ref());
        driven
    }

    /// How many bytes were accepted. The next byte begins an incomplete head or a refused message, or is the wrong byte
    /// of a body.
    pub(crate) fn accepted_bytes(&self) -> usize {
        self.fed - self.server.unread_bytes()
    }

    /// How many bytes were accepted, and why the rest is refused.
    pub(crate) fn verdict(&self) -> (usize, Option<RequestRefusal>) {
        (self.accepted_bytes(), self.refusal)
    }

    /// Whether the next byte belongs to a body.
    pub(crate) fn is_in_body(&self) -> bool {
        self.is_refused_in_body || self.server.phase() == Phase::Body
    }

    pub(crate) fn feed(&mut self, bytes: &[u8]) {
        self.fed += bytes.len();
        self.server.handle_input(bytes);
        while self.step() {}
    }

    /// Makes one step. Returns false if more bytes are needed, or if the connection is refused.
    fn step(&mut self) -> bool {
        if !self.is_served {
            match self.server.poll_request() {
                None => return false,
                Some(Err(refusal)) => {
                    self.refusal = Some(refusal);
                    respond(&mut self.server, StatusCode::BAD_REQUEST);
                    return false;
                }
                Some(Ok(request)) => {
                    let head = request.head;
                    self.log.push(format!("{} {} {:?} {:?}", head.method, head.uri, head.version, head.headers));
                    self.is_served = true;
                }
            }
        }
        match self.server.poll_body() {
            Ok(Piece::Missing) => return false,
            Ok(Piece::Data(data)) => {
                assert!(!data.is_empty());
                match self.log.last_mut().filter(|line| line.starts_with("body ")) {
                    Some(line) => *line += &data.escape_ascii().to_string(),
                    None => self.log.push(format!("body {}", data.escape_ascii())),
                }
                return true;
            }
            Ok(Piece::Trailers(trailers)) => self.log.push(format!("trailers {trailers:?}")),
            Ok(Piece::End) => {}
            Err(refusal) => {
                (self.refusal, self.is_refused_in_body) = (Some(refusal), true);
                return false;
            }
        }
        self.is_served = false;
        respond(&mut self.server, StatusCode::NO_CONTENT);
        true
    }
}

/// Responds without a body. Returns whether the connection persists.
pub(crate) fn respond(server: &mut Server, status: StatusCode) -> bool {
    let head = ResponseHead { status, fields: &HeaderMap::new(), length: Some(0), may_persist: true };
    server.send_head(&head)
}

/// Takes the output of the server.
pub(crate) fn written(server: &mut Server) -> String {
    let mut bytes = Vec::new();
    while !server.output().is_empty() {
        let mut slices = [std::io::IoSlice::new(&[]); 4];
        let count = server.output().slices(&mut slices);
        let before = bytes.len();
        slices[..count].iter().for_each(|slice| bytes.extend_from_slice(slice));
        let written = bytes.len() - before;
        server.output().mark_written(written);
    }
    String::from_utf8(bytes).unwrap()
}
