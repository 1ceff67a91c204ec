// SPDX-License-Identifier: Apache-2.0 OR MIT
//! As much of HTTP/1.1 (RFC 9112) as reading a page takes: one request on a connection, and its answer.

use std::io::{Error, ErrorKind, Read, Result, Write};
use std::net::TcpStream;
use std::time::Duration;

/// How long a client may take to ask, and to read a piece of the answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The longest request, in bytes.
const MAX_REQUEST: usize = 8192;
/// How many header lines a request has at most.
const MAX_HEADERS: usize = 64;

/// A request.
pub struct Request {
    /// What is to be done: `GET`.
    pub method: String,
    /// Of what, without what is behind a question mark.
    pub path: String,
}

/// An answer.
pub struct Response {
    /// The status, with its words: `404 Not Found`.
    pub status: &'static str,
    /// The form of the text.
    pub content: &'static str,
    /// The text.
    pub text: String,
}

/// Answers the request of one client by what `handle` makes of it.
///
/// # Errors
/// The client has sent no request, or has left, or is too slow.
pub fn serve(mut stream: TcpStream, handle: impl FnOnce(&Request) -> Response) -> Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = read(&mut stream)?;
    let Response { status, content, text } = handle(&request);
    let length = text.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {content}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    if request.method == "HEAD" { Ok(()) } else { stream.write_all(text.as_bytes()) }
}

fn read(stream: &mut impl Read) -> Result<Request> {
    let mut bytes = Vec::new();
    let mut buffer = [0; 1024];
    while bytes.len() < MAX_REQUEST {
        let count = stream.read(&mut buffer)?;
        bytes.extend_from_slice(buffer.get(..count).unwrap_or_default());
        let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
        let mut request = httparse::Request::new(&mut headers);
        let parsed = request.parse(&bytes).map_err(|error| Error::new(ErrorKind::InvalidData, error))?;
        if let (true, Some(method), Some(target)) = (parsed.is_complete(), request.method, request.path) {
            let path = target.split('?').next().unwrap_or_default();
            return Ok(Request { method: method.to_owned(), path: path.to_owned() });
        }
        if count == 0 {
            break;
        }
    }
    Err(ErrorKind::InvalidData.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_come_in_pieces() {
        let text = b"GET /metrics?x=1 HTTP/1.1\r\nHost: here\r\n\r\n";
        let (first, rest) = text.split_at(9);
        let request = read(&mut first.chain(rest)).unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("GET", "/metrics"));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        let refused = |bytes: &[u8]| read(&mut &bytes[..]).is_err();
        assert!(refused(b"") && refused(b"GET /metrics HTTP/1.1\r\n"), "it ends too early");
        assert!(refused(b"\x16\x03\x01\x02\x00\x01\x00"), "TLS");
        let endless = [b"GET /".as_slice(), &[b'a'; 2 * MAX_REQUEST]].concat();
        assert!(refused(&endless));
    }
}
