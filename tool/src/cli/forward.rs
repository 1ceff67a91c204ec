// SPDX-License-Identifier: Apache-2.0 OR MIT
//! `HOST:GUEST`: a TCP port of this computer that leads to one of a guest.

use crate::qemu::Forward;

const FORM: &str = "write a port of this computer, a colon and the guest's port, such as 2222:22";

/// Reads one; the error says what to write.
pub fn parse(text: &str) -> Result<Forward, String> {
    let (host, guest) = text.split_once(':').ok_or(FORM)?;
    Ok(Forward { host: port(host)?, guest: port(guest)? })
}

fn port(text: &str) -> Result<u16, String> {
    if text.is_empty() || !text.bytes().all(|digit| digit.is_ascii_digit()) {
        return Err(FORM.to_owned());
    }
    let port = text.parse().ok().filter(|port| *port != 0);
    port.ok_or_else(|| format!("{text} is no port: these are 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwards_are_read() {
        assert_eq!(parse("2222:22"), Ok(Forward { host: 2222, guest: 22 }));
        for wrong in ["", "22", "22:", ":22", "tcp:22", "1:2:3", "-1:22"] {
            assert!(parse(wrong).unwrap_err().contains("2222:22"), "{wrong}");
        }
        for wrong in ["0:22", "22:0", "65536:22", "22:99999"] {
            assert!(parse(wrong).unwrap_err().contains("is no port: these are 1 to 65535"), "{wrong}");
        }
    }
}
