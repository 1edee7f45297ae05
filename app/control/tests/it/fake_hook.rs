//! A hook for messages to persons, which keeps them.

use std::sync::{Arc, Mutex};

use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinHandle,
};

pub(crate) const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// A message as it came.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Message {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        let found = self.head.lines().filter_map(|line| line.split_once(": "));
        found.into_iter().find(|(found, _)| found.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
    }

    /// The path and query of the link.
    pub(crate) fn link(&self) -> String {
        path_of(self.json()["link"].as_str().unwrap())
    }
}

pub(crate) fn path_of(link: &str) -> String {
    link.strip_prefix("https://login.localhost:8443").unwrap().to_owned()
}

pub(crate) struct FakeHook {
    pub(crate) url: String,
    messages: Arc<Mutex<Vec<Message>>>,
    answers: Arc<Mutex<String>>,
    serving: JoinHandle<()>,
}

impl Drop for FakeHook {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

impl FakeHook {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mail?for=shop", listener.local_addr().unwrap());
        let (messages, answers) = (Arc::default(), Arc::new(Mutex::new("204 No Content".to_owned())));
        let serving = tokio::spawn(serve(listener, Arc::clone(&messages), Arc::clone(&answers)));
        Self { url, messages, answers, serving }
    }

    /// Sets its status and header fields.
    pub(crate) fn answers(&self, status: &str) {
        *self.answers.lock().unwrap() = status.to_owned();
    }

    pub(crate) fn messages(&self) -> Vec<Message> {
        self.messages.lock().unwrap().clone()
    }

    /// Waits for this many messages.
    pub(crate) async fn waits_for(&self, count: usize) -> Message {
        for _ in 0..2_000 {
            if let Some(message) = self.messages().get(count - 1) {
                return message.clone();
            }
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        panic!("only {} messages arrived", self.messages().len());
    }
}

async fn serve(listener: TcpListener, messages: Arc<Mutex<Vec<Message>>>, answers: Arc<Mutex<String>>) {
    while let Ok((mut stream, _)) = listener.accept().await {
        let (messages, answers) = (Arc::clone(&messages), Arc::clone(&answers));
        tokio::spawn(async move {
            let mut request = Vec::new();
            loop {
                let mut chunk = [0; 4_096];
                let Ok(read) = stream.read(&mut chunk).await else { return };
                request.extend_from_slice(&chunk[..read]);
                let text = String::from_utf8_lossy(&request).into_owned();
                if let Some((head, body)) = text.split_once("\r\n\r\n") {
                    let message = Message { head: head.to_owned(), body: body.to_owned() };
                    if body.len() == message.header("content-length").parse::<usize>().unwrap_or_default() {
                        messages.lock().unwrap().push(message);
                        break;
                    }
                }
                if read == 0 {
                    return;
                }
            }
            let status = answers.lock().unwrap().clone();
            let response = format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            let _ = stream.write_all(response.as_bytes()).await;
        });
    }
}
