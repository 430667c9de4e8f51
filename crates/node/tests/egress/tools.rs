//! The tools that people use, behind a list, against servers of this machine: by a name that the
//! list has, with certificates of an authority that only the user trusts.

use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use mini_ork_node::egress::NetworkPolicy;
use mini_ork_testkit::{skip, wait_for};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, KeyUsagePurpose,
};

use crate::places::Place;
use crate::support::{Server, Zone};

const PYTHON: &str = "/usr/bin/python3";
const HOST: &str = "tools.test";

/// Files over HTTPS, for a certificate that only the test's own authority vouches for.
struct Files {
    server: Child,
    port: u16,
}

impl Files {
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn serve(directory: &Path, authority: &Path) -> Self {
        let mut issuer = CertificateParams::new(Vec::new()).unwrap();
        issuer.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        issuer.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        // Two authorities of one name would be taken for each other.
        let name = format!("the authority of {}", directory.display());
        issuer.distinguished_name.push(DnType::CommonName, name);
        let issuer = CertifiedIssuer::self_signed(issuer, KeyPair::generate().unwrap()).unwrap();
        fs_err::write(authority, issuer.pem()).unwrap();
        let key = KeyPair::generate().unwrap();
        let certificate = CertificateParams::new(vec![HOST.to_owned()]).unwrap();
        let certificate = certificate.signed_by(&key, &issuer).unwrap();
        let chain = directory.with_extension("pem");
        let pem = format!("{}{}", key.serialize_pem(), certificate.pem());
        fs_err::write(&chain, pem).unwrap();
        let told = directory.with_extension("port");
        let program = "import http.server, os, ssl, sys\n\
            server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), http.server.SimpleHTTPRequestHandler)\n\
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)\n\
            context.load_cert_chain(sys.argv[1])\n\
            server.socket = context.wrap_socket(server.socket, server_side=True)\n\
            open(sys.argv[2] + '.new', 'w').write(str(server.server_address[1]))\n\
            os.rename(sys.argv[2] + '.new', sys.argv[2])\n\
            server.serve_forever()\n";
        let server = Command::new(PYTHON)
            .args(["-c", program])
            .args([&chain, &told])
            .current_dir(directory)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("server", Duration::from_secs(30), || told.exists());
        let port = fs_err::read_to_string(&told).unwrap().parse().unwrap();
        Self { server, port }
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// What the server has: a repository, an index of Python packages, one of Node's and one of
/// cargo's. The port is known only later, so that addresses in files are relative or put in then.
const CONTENT: &str = r#"
set -e
git init -q -b main source
git -C source -c user.name=a -c user.email=a@b commit -q --allow-empty -m first
git clone -q --bare source repo.git
git -C repo.git update-server-info
mkdir -p simple/demo
echo '<a href="demo-1.0-py3-none-any.whl">demo-1.0-py3-none-any.whl</a>' > simple/demo/index.html
/usr/bin/python3 - <<'END'
import zipfile
with zipfile.ZipFile('simple/demo/demo-1.0-py3-none-any.whl', 'w') as wheel:
    wheel.writestr('demo.py', '')
    wheel.writestr('demo-1.0.dist-info/METADATA', 'Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n')
    wheel.writestr('demo-1.0.dist-info/WHEEL', 'Wheel-Version: 1.0\nTag: py3-none-any\n')
    wheel.writestr('demo-1.0.dist-info/RECORD', '')
END
echo '{"name":"demo","dist-tags":{"latest":"1.0.0"},"versions":{"1.0.0":{"name":"demo","version":"1.0.0","description":"it works"}}}' > demo
mkdir -p index/de/mo crates demo-1.0.0/src
printf '[package]\nname = "demo"\nversion = "1.0.0"\nedition = "2021"\n' > demo-1.0.0/Cargo.toml
touch demo-1.0.0/src/lib.rs
tar -czf crates/demo-1.0.0.crate demo-1.0.0
digest=$(sha256sum crates/demo-1.0.0.crate | cut -d' ' -f1)
echo "{\"name\":\"demo\",\"vers\":\"1.0.0\",\"deps\":[],\"cksum\":\"$digest\",\"features\":{},\"yanked\":false}" > index/de/mo/demo
"#;

#[expect(clippy::disallowed_methods, reason = "a preparation of the test's own")]
fn prepare(directory: &Path) -> bool {
    fs_err::create_dir(directory).unwrap();
    let prepared = Command::new("/bin/sh")
        .args(["-c", CONTENT])
        .current_dir(directory)
        .env("HOME", directory)
        .status();
    prepared.is_ok_and(|status| status.success())
}

/// An SSH server that lets in whoever has the key.
struct Ssh {
    server: Child,
    port: u16,
}

impl Ssh {
    /// `directory` gets a key for the client, `key`.
    #[expect(clippy::disallowed_methods, reason = "a server of the test's own")]
    fn serve(directory: &Path) -> Self {
        fs_err::create_dir(directory).unwrap();
        for name in ["host", "key"] {
            let made = Command::new("/usr/bin/ssh-keygen")
                .args(["-q", "-t", "ed25519", "-N", "", "-f", name])
                .current_dir(directory)
                .status();
            assert!(made.unwrap().success());
        }
        // Where it cannot be made it is there, or the server needs none.
        let _ = fs_err::create_dir("/run/sshd");
        let port = {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            listener.local_addr().unwrap().port()
        };
        let shown = directory.display();
        let configuration = format!(
            "ListenAddress 127.0.0.1:{port}\nHostKey {shown}/host\nPidFile none\nUsePAM no\n\
             StrictModes no\nAuthorizedKeysFile {shown}/key.pub\nPasswordAuthentication no\n\
             PermitRootLogin prohibit-password\n"
        );
        let file = directory.join("sshd.conf");
        fs_err::write(&file, configuration).unwrap();
        let log = fs_err::File::create(directory.join("log")).unwrap();
        let server = Command::new("/usr/sbin/sshd")
            .args(["-D", "-e", "-f"])
            .arg(file)
            .stdin(Stdio::null())
            .stderr(log.into_file())
            .spawn()
            .unwrap();
        wait_for("sshd", Duration::from_secs(30), || {
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()
        });
        Self { server, port }
    }
}

impl Drop for Ssh {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The programs that have to be here; the first that is missing.
fn missing() -> Option<&'static str> {
    const PROGRAMS: [&str; 6] = [
        PYTHON,
        "/usr/bin/curl",
        "/usr/bin/npm",
        "/usr/bin/psql",
        "/usr/bin/ssh",
        "/usr/sbin/sshd",
    ];
    let mut programs = PROGRAMS.into_iter();
    programs.find(|program| !Path::new(program).exists())
}

/// The servers, with what tools get from them.
struct World {
    place: tempfile::TempDir,
    files: Files,
    /// One whose authority an image trusts.
    others: Files,
    ssh: Ssh,
    database: Server,
}

impl World {
    /// None, with a word, where a program is missing.
    fn new() -> Option<Self> {
        if let Some(program) = missing() {
            skip(&format!("there is no {program}; scripts/test installs it"));
            return None;
        }
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        if !prepare(&path("content")) {
            skip("git or tar is missing");
            return None;
        }
        let files = Files::serve(&path("content"), &path("authority.pem"));
        let base = format!("https://{HOST}:{}", files.port);
        let config = format!(r#"{{"dl":"{base}/crates/{{crate}}-{{version}}.crate"}}"#);
        fs_err::write(path("content/index/config.json"), config).unwrap();
        fs_err::create_dir(path("others")).unwrap();
        fs_err::write(path("others/demo"), "it is there\n").unwrap();
        let others = Files::serve(&path("others"), &path("others.authority"));
        Some(Self {
            files,
            others,
            ssh: Ssh::serve(&path("ssh")),
            database: Server::database(),
            place,
        })
    }

    fn zone() -> std::sync::Arc<Zone> {
        Zone::of(&[(HOST, &["127.0.0.1"])])
    }

    /// The list has the name and, as it leads to this machine, the address.
    fn policy(&self) -> NetworkPolicy {
        let ports = [
            self.files.port,
            self.others.port,
            self.ssh.port,
            self.database.port(),
        ];
        let entries: Vec<String> = ports
            .iter()
            .flat_map(|port| [format!("{HOST}:{port}"), format!("127.0.0.1:{port}")])
            .collect();
        NetworkPolicy::new("allowlist", entries.iter().map(String::as_str)).unwrap()
    }

    fn authorities(&self) -> Vec<PathBuf> {
        vec![self.place.path().join("authority.pem")]
    }

    fn trusted(&self) -> String {
        fs_err::read_to_string(self.place.path().join("others.authority")).unwrap()
    }

    /// Uses everything in `place`, in which also the other server is trusted if `others` is.
    #[track_caller]
    fn use_all(&self, place: &Place, others: bool) {
        let work = place.work();
        fs_err::copy(self.place.path().join("ssh/key"), work.join("key")).unwrap();
        make_environment(&work);
        let (base, ssh, database) = (
            format!("https://{HOST}:{}", self.files.port),
            self.ssh.port,
            self.database.port(),
        );
        let repository = self.place.path().join("content/repo.git");
        let user = user_name();
        let second = format!("https://{HOST}:{}/demo", self.others.port);
        let script = format!(
            "export HOME=$PWD PIP_DISABLE_PIP_VERSION_CHECK=1 NO_UPDATE_NOTIFIER=1; unset XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME\n\
             direct() {{ env -u HTTP_PROXY -u http_proxy -u HTTPS_PROXY -u https_proxy -u ALL_PROXY -u all_proxy \"$@\"; }}\n\
             try() {{ name=$1; shift; \"$@\" > out 2>&1 && echo \"$name works\" || {{ echo \"$name failed\"; cat out; }}; }}\n\
             try curl curl -sSf {base}/demo; try curl-direct direct curl -sSf {base}/demo\n\
             store() {{ env -u SSL_CERT_FILE -u SSL_CERT_DIR -u CURL_CA_BUNDLE \"$@\"; }}; try curl-store store curl -sSf {base}/demo\n\
             try git git clone -q {base}/repo.git one; try git-direct direct git clone -q {base}/repo.git two\n\
             curl -sS https://other.test/ > out 2>&1 || grep -o 403 out | head -n 1\n\
             try pip pip/bin/python3 -m pip download -q --no-deps --index-url {base}/simple/ demo\n\
             try npm npm view demo description --registry {base}/\n\
             mkdir -p app/src; touch app/src/lib.rs\n\
             printf '[package]\\nname = \"app\"\\nversion = \"0.1.0\"\\nedition = \"2021\"\\n[dependencies]\\ndemo = {{ version = \"1\", registry = \"own\" }}\\n' > app/Cargo.toml\n\
             export CARGO_HOME=$PWD/cargo CARGO_REGISTRIES_OWN_INDEX=sparse+{base}/index/\n\
             try cargo cargo fetch --manifest-path app/Cargo.toml\n\
             export GIT_SSH_COMMAND=\"ssh -F none -i key -o BatchMode=yes -o StrictHostKeyChecking=accept-new -o UserKnownHostsFile=known\"\n\
             try ssh git clone -q ssh://{user}@{HOST}:{ssh}{repository} three; git -C three log --format=%s\n\
             try psql psql 'host={HOST} port={database} user=a dbname=b sslmode=prefer connect_timeout=20' -Atc 'select 1'; cat out\n\
             curl -sSf {second} 2>&1 | grep -o 'it is there\\|certificate' | head -n 1\n",
            repository = repository.display(),
        );
        let said = place.run(&script);
        let expected = [
            "curl works",
            "curl-direct works",
            "curl-store works",
            "git works",
            "git-direct works",
            "403",
            "pip works",
            "npm works",
            "cargo works",
            "ssh works",
            "first",
            "psql works",
            "1",
            if others { "it is there" } else { "certificate" },
        ];
        assert_eq!(said.lines().collect::<Vec<_>>(), expected, "{said}");
        let denials = place.workspace().denials();
        let mut denied = denials.iter().filter(|denial| denial.place.contains(':'));
        assert_eq!(denied.next().unwrap().place, "other.test:443");
        assert_eq!(denied.next(), None, "{denials:?}");
    }
}

/// A Python with a pip of its own, as Debian's has none to itself.
#[expect(clippy::disallowed_methods, reason = "a preparation of the test's own")]
fn make_environment(work: &Path) {
    let made = Command::new(PYTHON)
        .args(["-m", "venv", "pip"])
        .current_dir(work)
        .status();
    assert!(made.unwrap().success(), "Debian's python3-venv is missing");
}

#[expect(clippy::disallowed_methods, reason = "a program of the test's own")]
fn user_name() -> String {
    let output = Command::new("/usr/bin/id").arg("-un").output().unwrap();
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

#[test]
fn bc_41_tools_reach_what_is_allowed_from_a_confined_workspace() {
    let Some(world) = World::new() else {
        return;
    };
    let place = Place::confined(world.policy(), World::zone(), world.authorities());
    let Some(place) = place else {
        return;
    };
    world.use_all(&place, false);
    // The user's authority has come to those of this machine, and nobody can change the file.
    let own = fs_err::read_to_string("/etc/ssl/certs/ca-certificates.crt").unwrap_or_default();
    let count = own.matches("BEGIN CERTIFICATE").count();
    let said = place.run(
        "grep -c 'BEGIN CERT' $SSL_CERT_FILE; (echo x >> $SSL_CERT_FILE) 2>/dev/null || echo kept; \
         rm -f $SSL_CERT_FILE 2>/dev/null || echo kept",
    );
    assert_eq!(said, format!("{}\nkept\nkept\n", count + 1));
}

#[test]
fn bc_41_tools_reach_what_is_allowed_from_a_container() {
    let Some(world) = World::new() else {
        return;
    };
    let (policy, zone) = (world.policy(), World::zone());
    let place = Place::in_container(policy, zone, world.authorities(), &world.trusted());
    let Some(place) = place else {
        return;
    };
    world.use_all(&place, true);
    let said = place.run(
        "for name in SSL_CERT_FILE NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE CURL_CA_BUNDLE GIT_SSL_CAINFO CARGO_HTTP_CAINFO; do \
         eval \"grep -c 'BEGIN CERT' \\$$name\"; done; (echo x >> $SSL_CERT_FILE) 2>/dev/null || echo kept",
    );
    assert_eq!(said, format!("{}kept\n", "2\n".repeat(6)));
}
