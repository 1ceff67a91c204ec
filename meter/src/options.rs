// SPDX-License-Identifier: Apache-2.0 OR MIT
//! The plugin's command line.

use std::ops::Range;

const EXPECTED: &str = "out=FILE, guest=0xSTART-0xEND, host=VMID, copy=0xSTART-0xEND, boot=0xPC, trace=on, footprint=on or total=on";

/// What the plugin was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Where the reading goes.
    pub out: String,
    /// Program counters of the guest; with none, privilege alone decides.
    pub guest: Vec<Range<u64>>,
    /// arm64: the VMID of a virtual machine that belongs to the hypervisor, and is outside the guest wherever it runs.
    pub host: Option<u16>,
    /// Where services, as they are linked, copy bytes of guests.
    pub copy: Option<Range<u64>>,
    /// Where the hypervisor begins: what runs from there to the first instruction of a guest is counted as its boot.
    pub boot: Option<u64>,
    /// Whether the instructions of the modal visits are reported.
    pub trace: bool,
    /// Whether the lines and pages that visits touch are counted.
    pub footprint: bool,
    /// Whether all instructions of the whole run are counted, and nothing else.
    pub total: bool,
}

impl Options {
    /// Reads the arguments, each `name=value` as QEMU passes them.
    ///
    /// # Errors
    /// Says what is wrong.
    pub fn parse<'a>(arguments: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let mut options = Options::default();
        for argument in arguments {
            match argument.split_once('=') {
                Some(("out", path)) if !path.is_empty() => options.out = path.to_owned(),
                Some(("guest", text)) => options.guest.push(range("guest", text)?),
                Some(("host", text)) => options.host = Some(vmid(text)?),
                Some(("copy", text)) => options.copy = Some(range("copy", text)?),
                Some(("boot", text)) => options.boot = Some(address(text)?),
                Some(("trace", text)) => options.trace = switch("trace", text)?,
                Some(("footprint", text)) => options.footprint = switch("footprint", text)?,
                Some(("total", text)) => options.total = switch("total", text)?,
                _ => return Err(format!("\"{argument}\" means nothing; expected {EXPECTED}")),
            }
        }
        match options {
            Options { ref out, .. } if out.is_empty() => Err("out=FILE is missing".to_owned()),
            Options { total: true, ref guest, host, ref copy, trace, footprint, boot, .. }
                if trace
                    || footprint
                    || boot.is_some()
                    || host.is_some()
                    || copy.is_some()
                    || !guest.is_empty() =>
            {
                Err("total=on counts everything: it goes without guest=, host=, copy=, boot=, trace=on and footprint=on"
                    .to_owned())
            }
            options => Ok(options),
        }
    }
}

fn switch(name: &str, text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("{name}={text}: expected on or off")),
    }
}

fn vmid(text: &str) -> Result<u16, String> {
    text.parse().map_err(|_| format!("host={text}: expected a VMID, a decimal number up to 65535"))
}

fn address(text: &str) -> Result<u64, String> {
    let number = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
    number.ok_or_else(|| format!("boot={text}: expected 0xPC"))
}

fn range(name: &str, text: &str) -> Result<Range<u64>, String> {
    let number = |text: &str| u64::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    let parsed = text.split_once('-').and_then(|(start, end)| Some(number(start)?..number(end)?));
    match parsed {
        Some(range) if !range.is_empty() => Ok(range),
        Some(_) => Err(format!("{name}={text}: the end is not above the start")),
        None => Err(format!("{name}={text}: expected 0xSTART-0xEND")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(arguments: &[&str]) -> Result<Options, String> {
        Options::parse(arguments.iter().copied())
    }

    #[test]
    fn reads_all_options() {
        let options =
            parse(&["out=a=b", "guest=0x10-0x20", "guest=0x40-0xff", "trace=on", "boot=0x30"]).unwrap();
        assert_eq!(options.out, "a=b");
        assert_eq!(options.guest, [0x10..0x20, 0x40..0xff]);
        assert!(options.trace && !options.total && !options.footprint);
        assert_eq!((options.host, parse(&["out=a", "host=1"]).unwrap().host), (None, Some(1)));
        assert_eq!(parse(&["out=a", "copy=0x80-0x100"]).unwrap().copy, Some(0x80..0x100));
        assert!(parse(&["out=a", "footprint=on"]).unwrap().footprint);
        assert_eq!((options.boot, parse(&["out=a"]).unwrap().boot), (Some(0x30), None));
        assert!(parse(&["out=a", "total=on"]).unwrap().total);
    }

    #[test]
    fn says_what_is_wrong() {
        let error = |arguments: &[&str]| parse(arguments).unwrap_err();
        assert!(
            error(&["out=f", "quest=0x1-0x2"]).starts_with("\"quest=0x1-0x2\" means nothing; expected out=")
        );
        assert_eq!(error(&["trace=on"]), "out=FILE is missing");
        assert_eq!(error(&["out="]), format!("\"out=\" means nothing; expected {EXPECTED}"));
        assert_eq!(error(&["out=f", "trace=yes"]), "trace=yes: expected on or off");
        assert_eq!(error(&["out=f", "guest=16-32"]), "guest=16-32: expected 0xSTART-0xEND");
        assert_eq!(error(&["out=f", "guest=0x20-0x20"]), "guest=0x20-0x20: the end is not above the start");
        assert_eq!(error(&["out=f", "host=0x1"]), "host=0x1: expected a VMID, a decimal number up to 65535");
        assert!(error(&["out=f", "host=65536"]).starts_with("host=65536: expected"));
        assert_eq!(error(&["out=f", "copy=0x20"]), "copy=0x20: expected 0xSTART-0xEND");
        assert_eq!(error(&["out=f", "boot=30"]), "boot=30: expected 0xPC");
        for other in ["trace=on", "footprint=on", "guest=0x10-0x20", "host=1", "copy=0x10-0x20", "boot=0x30"]
        {
            assert!(error(&["out=f", "total=on", other]).contains("total=on counts everything"), "{other}");
        }
    }
}
