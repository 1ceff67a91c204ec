// SPDX-License-Identifier: Apache-2.0 OR MIT
//! Debian on a disk: it starts without a complaint, has the size of its disk and the address of its network, installs a package from
//! its own mirror, and finds it again when it has started anew (in the long run).

use turnstile_link::StopReason;

use super::disks::is_up;
use super::scenario::{Record, Scenario, Step, linux};

/// What its shell says when it waits.
const PROMPT: &str = "root@debian:~# ";

/// One on arm64. In the long run it starts anew, and so do those of the others.
pub fn scenarios() -> Vec<Scenario> {
    let again = server("server/again", true);
    let long = again.on_all().map(Scenario::long);
    [server("server", false), no_root()].into_iter().chain(long).collect()
}

fn server(name: &str, again: bool) -> Scenario {
    Scenario::new(name, CONFIG, steps(again)).limit(900).judge(judge)
}

/// A disk that nothing can be started from leaves a shell, which has the disk.
fn no_root() -> Scenario {
    let config = linux("linux", 1, "quiet root=/dev/vda", "disks = [\"empty\"]")
        + "[[disk]]\nname = \"empty\"\nsize = \"4MiB\"\ntime-limit = \"1s\"\n";
    let mut steps = vec![Step::Expect(0, "turnstile: the root /dev/vda cannot be mounted")];
    steps.extend(is_up(0));
    steps.extend([
        Step::Type(0, "cat /sys/block/vda/size\r"),
        Step::Expect(0, "8192"),
        Step::Type(0, "poweroff -f\r"),
        Step::Stopped(0, StopReason::PowerOff),
    ]);
    Scenario::new("server/no-root", config, steps).limit(120)
}

/// A server, and a client whose shell is the initrd's. An emulator that others keep from running is not to be taken for a service that
/// loops.
const CONFIG: &str = "[[vm]]\nname = \"server\"\nkernel = \"debian:linux\"\ninitrd = \"debian:busybox\"\nvcpus = 2\n\
                      memory = \"512MiB\"\ncmdline = \"quiet root=/dev/vda turnstile.ip=10.0.0.1/24\"\n\
                      disks = [\"root\"]\nnetworks = [\"lan\"]\n\
                      [[vm]]\nname = \"client\"\nkernel = \"debian:linux\"\ninitrd = \"debian:busybox\"\nvcpus = 1\n\
                      memory = \"256MiB\"\ncmdline = \"quiet turnstile.ip=10.0.0.2/24\"\nnetworks = [\"lan\"]\n\
                      [[disk]]\nname = \"root\"\nimage = \"debian:server\"\nsize = \"1GiB\"\ntime-limit = \"1s\"\n\
                      [[network]]\nname = \"lan\"\ntime-limit = \"1s\"\n";

/// What is echoed is not what is expected: it has other letters.
fn steps(again: bool) -> Vec<Step> {
    let log_in = [
        Step::Expect(0, "debian login: "),
        Step::Type(0, "root\r"),
        Step::Expect(0, "Password: "),
        Step::Type(0, "turnstile\r"),
        Step::Expect(0, PROMPT),
    ];
    let first = [
        Step::Type(0, "systemctl is-system-running --wait | tr a-z A-Z\r"),
        Step::Expect(0, "RUNNING"),
        Step::Expect(0, PROMPT),
        Step::Type(0, "df -m / | tail -n 1 | tr a-z A-Z\r"),
        Step::Expect(0, "/DEV/VDA "),
        Step::Expect(0, PROMPT),
        Step::Type(0, "apt-get -qq -y install hello netcat-openbsd; hello | tr a-z A-Z\r"),
        Step::Expect(0, "HELLO, WORLD!"),
        Step::Expect(0, PROMPT),
        Step::Type(0, "hello | nc -N -l -p 80 &\r"),
        Step::Expect(0, PROMPT),
        Step::Type(1, "nc 10.0.0.1 80 </dev/null | tr a-z A-Z\r"),
        Step::Expect(1, "HELLO, WORLD!"),
        Step::Type(1, "poweroff -f\r"),
        Step::Stopped(1, StopReason::PowerOff),
    ];
    let restart = [Step::Type(0, "reboot\r"), Step::Started(0, 2)];
    let installed = [
        Step::Type(0, "hello | tr a-z A-Z; dpkg --audit\r"),
        Step::Expect(0, "HELLO, WORLD!"),
        Step::Expect(0, PROMPT),
    ];
    let off = [Step::Type(0, "poweroff\r"), Step::Stopped(0, StopReason::PowerOff)];
    let once = [&is_up(1)[..], &log_in, &first].concat();
    match again {
        true => [&once[..], &restart, &log_in, &installed, &off].concat(),
        false => [&once[..], &off].concat(),
    }
}

/// The file system has grown with the disk, and nothing failed.
fn judge(record: &Record) -> Result<(), String> {
    let console = record.console(0);
    let sizes = console.split_once("/DEV/VDA ").map_or("", |(_, sizes)| sizes);
    let size = sizes.split_whitespace().next().and_then(|size| size.parse::<u32>().ok());
    match (size, ["FAILED", "I/O error", "EXT4-fs error"].iter().find(|bad| console.contains(**bad))) {
        (_, Some(bad)) => Err(format!("the server says {bad}")),
        (Some(900..=1024), None) => Ok(()),
        (size, None) => Err(format!("a disk of 1024 MiB has a file system of {size:?}")),
    }
}
