//! User enumeration by timing: whether the response time to a wrong password differs between a user
//! that exists and one that does not.
//!
//! The two kinds of request alternate at random over one connection.
//!
//! The names have the same length, and the password of both is the same wrong one.
//! After each wrong Basic password the client waits until the hasher has paused, as an attacker would
//! who wants to measure one hash alone: otherwise the time of one response could include three times
//! the work for the one before.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use super::statistics::{self, RankTest};
use super::{Algorithm, AuthenticatedDatabase, CLOSED_PATH, Credentials, TestUser};
use crate::Result;
use crate::load_generator::{Client, RequestTemplate};
use crate::process::{self, Folder};
use crate::report::{self, Target, median};
use crate::store;

/// For each of the two users.
const SAMPLES: usize = 2_000;
const SAMPLES_QUICK: usize = 200;
const WARM_UP: usize = 10;
/// Pause after a wrong Basic password.
const PAUSE_AFTER_WRONG_BASIC: Duration = Duration::from_millis(50);
/// A smaller probability counts as a significant difference.
const P_MIN: f64 = 0.001;

/// A limit that is never reached, so that nobody is locked out.
const NO_LOCKOUT: &str = "\n[server.limits]\nfailed_logins_max = 2000000000\n";

pub fn run(is_quick: bool) -> Result<()> {
    let nouns = process::build_dist()?;
    let folder = Folder::new()?;
    let closed = AuthenticatedDatabase::fill(&nouns, &folder, 1_000, NO_LOCKOUT)?;
    let (server, _) = closed.serve(&nouns)?;
    let address = server.address;
    let samples = if is_quick { SAMPLES_QUICK } else { SAMPLES };
    let (known, unknown) = (TestUser::new("admin", "wrong"), TestUser::new("nimda", "wrong"));
    let digest = |person: &TestUser| person.digest(address, Algorithm::Md5);
    let digests = [digest(&known)?, digest(&unknown)?];
    println!("\n{:<18} {:>14} {:>14} {:>8} {:>10}", "", "known, µs", "unknown, µs", "z", "p");
    let figures = [
        ("Digest", compare("Digest", address, &digests, samples)?),
        ("Basic", compare("Basic", address, &[known.basic(), unknown.basic()], samples)?),
    ];
    let name = |scheme| format!("{scheme}, known and unknown alike, p");
    let names = figures.map(|(scheme, rank)| (name(scheme), rank.p));
    let judged: Vec<_> =
        names.iter().map(|(name, p)| (&**name, *p, Target::AtLeast(P_MIN))).collect();
    report::judge(&judged);
    println!("Mann-Whitney U, two-sided, {samples} samples each");
    Ok(())
}

fn compare(
    scheme: &str,
    address: SocketAddr,
    logins: &[Credentials; 2],
    samples: usize,
) -> Result<RankTest> {
    let mut client = Client::connect(address)?;
    let [known, unknown] = logins.each_ref().map(|login| {
        let shot = RequestTemplate::get_with_credentials(CLOSED_PATH, login).expecting(401);
        move |client: &mut Client| sample(client, login, &shot)
    });
    for _ in 0..WARM_UP {
        known(&mut client)?;
        unknown(&mut client)?;
    }
    let mut order: Vec<bool> = (0..samples * 2).map(|number| number % 2 == 0).collect();
    store::shuffle(&mut order);
    let mut times = (Vec::new(), Vec::new());
    for is_known in order {
        if is_known {
            times.0.push(known(&mut client)?);
        } else {
            times.1.push(unknown(&mut client)?);
        }
    }
    let rank = statistics::mann_whitney(&times.0, &times.1);
    let (first, second) = (median(times.0), median(times.1));
    println!("{scheme:<18} {first:>14.2} {second:>14.2} {:>8.2} {:>10.6}", rank.z, rank.p);
    Ok(rank)
}

/// The time of one response, in microseconds.
fn sample(client: &mut Client, login: &Credentials, shot: &RequestTemplate) -> Result<f64> {
    let began = Instant::now();
    client.send(shot)?;
    let took = began.elapsed();
    if let Credentials::Basic(_) = login {
        thread::sleep(PAUSE_AFTER_WRONG_BASIC);
    }
    Ok(report::micros(took))
}
