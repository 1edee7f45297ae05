//! The local port to which the browser brings the code (RFC 8252 section 7.3).

use std::{io, net::Ipv4Addr, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

/// The longest head of a request that is read, in bytes.
const MAX_HEAD_BYTES: usize = 16 * 1_024;
/// How long a browser may take to send a request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// How many requests are answered before the login fails: browsers request icons too.
const MAX_REQUESTS: usize = 100;
const PATH: &str = "/callback";

/// A local port that waits for the browser.
pub(super) struct Callback {
    listener: TcpListener,
    state: String,
}

/// The answer of the browser.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum CallbackAnswer {
    /// The code.
    Code(String),
    /// The person has refused.
    Denied,
}

impl Callback {
    /// Opens a free port; `state` ties the answer to this login.
    pub(super) async fn open(state: String) -> io::Result<Self> {
        Ok(Self { listener: TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?, state })
    }

    /// The address for the browser.
    pub(super) fn address(&self) -> io::Result<String> {
        Ok(format!("http://{}{PATH}", self.listener.local_addr()?))
    }

    /// Waits for the browser's answer. Other requests are refused, and the wait continues.
    pub(super) async fn wait(&self) -> io::Result<CallbackAnswer> {
        for _ in 0..MAX_REQUESTS {
            let (mut stream, _) = self.listener.accept().await?;
            let Ok(Ok(target)) = tokio::time::timeout(HEAD_TIMEOUT, target(&mut stream)).await else { continue };
            let brought = self.read(&target);
            let (status, says) = match &brought {
                Some(CallbackAnswer::Code(_)) => ("200 OK", "You are logged in. You can close this page, and go back."),
                Some(CallbackAnswer::Denied) => ("200 OK", "The login was refused. You can close this page."),
                None => ("404 Not Found", "There is nothing here."),
            };
            let page = format!("<!doctype html><meta charset=utf-8><title>Sallyport</title><p>{says}</p>\n");
            let answer = format!(
                "HTTP/1.1 {status}\r\ncontent-type: text/html; charset=utf-8\r\ncontent-length: {}\r\ncache-control: \
                 no-store\r\nreferrer-policy: no-referrer\r\ncontent-security-policy: default-src 'none'\r\n\
                 connection: close\r\n\r\n{page}",
                page.len()
            );
            drop(stream.write_all(answer.as_bytes()).await);
            drop(stream.shutdown().await);
            if let Some(brought) = brought {
                return Ok(brought);
            }
        }
        Err(io::Error::other("too many requests that are not of this login"))
    }

    fn read(&self, target: &str) -> Option<CallbackAnswer> {
        let query = target.strip_prefix(PATH)?.strip_prefix('?')?;
        let value = |name: &str| {
            let mut values =
                query.split('&').filter_map(|pair| pair.split_once('=')).filter(|(found, _)| *found == name);
            let (_, value) = values.next()?;
            values.next().is_none().then_some(value)
        };
        if value("state")? != self.state {
            return None;
        }
        match (value("code"), value("error")) {
            (Some(code), None) => Some(CallbackAnswer::Code(code.to_owned())),
            (None, Some(_)) => Some(CallbackAnswer::Denied),
            _ => None,
        }
    }
}

/// The target of a request.
async fn target(stream: &mut TcpStream) -> io::Result<String> {
    let mut head = Vec::new();
    let mut piece = [0; 2_048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut piece).await?;
        if read == 0 || head.len() + read > MAX_HEAD_BYTES {
            return Err(io::ErrorKind::InvalidData.into());
        }
        head.extend_from_slice(&piece[..read]);
    }
    let text = String::from_utf8_lossy(&head);
    let mut words = text.lines().next().unwrap_or_default().split(' ');
    match (words.next(), words.next()) {
        (Some("GET"), Some(target)) => Ok(target.to_owned()),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(address: &str, target: &str) -> String {
        let host = address.strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
        let mut stream = TcpStream::connect(&host).await.unwrap();
        stream.write_all(format!("GET {target} HTTP/1.1\r\nhost: {host}\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn only_logins_that_began_here_are_accepted() {
        let callback = Callback::open("the-state".to_owned()).await.unwrap();
        let address = callback.address().unwrap();
        let browser = tokio::spawn(async move {
            for foreign in [
                "/favicon.ico",
                "/callback",
                "/callback?code=evil",
                "/callback?code=evil&state=other",
                "/callback?code=evil&state=the-state&state=the-state",
                "/callback?code=evil&code=two&state=the-state",
                "/?code=evil&state=the-state",
            ] {
                assert!(get(&address, foreign).await.starts_with("HTTP/1.1 404"), "{foreign}");
            }
            get(&address, "/callback?code=good&state=the-state").await
        });
        assert_eq!(callback.wait().await.unwrap(), CallbackAnswer::Code("good".to_owned()));
        assert!(browser.await.unwrap().starts_with("HTTP/1.1 200"));
        assert_eq!(callback.read("/callback?error=access_denied&state=the-state"), Some(CallbackAnswer::Denied));
    }
}
