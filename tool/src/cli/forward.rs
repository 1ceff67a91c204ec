// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `HOST:GUEST`: a TCP port of this computer that leads to one of a guest.

use crate::qemu::Forward;

/// Reads one; the error says what to write.
pub fn parse(text: &str) -> Result<Forward, String> {
    let port = |text: &str| text.parse().ok().filter(|port| *port != 0);
    let ports = text.split_once(':').and_then(|(host, guest)| Some((port(host)?, port(guest)?)));
    let (host, guest) =
        ports.ok_or("write a port of this computer, a colon and the guest's port, such as 2222:22")?;
    Ok(Forward { host, guest })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read() {
        assert_eq!(parse("2222:22"), Ok(Forward { host: 2222, guest: 22 }));
        for wrong in ["", "22", "22:", ":22", "0:22", "22:0", "65536:22", "tcp:22", "1:2:3", "-1:22"] {
            assert!(parse(wrong).unwrap_err().contains("2222:22"), "{wrong}");
        }
    }
}
