"""A certificate authority on disk with one certificate per role, for the TLS of loopback servers."""

from __future__ import annotations

import ipaddress
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from spillway.errors import SandboxError

_LIFETIME = timedelta(days=365)
_RENEW_BEFORE = timedelta(days=30)
_ADDRESSES = ("127.0.0.1", "10.96.0.1")
_NAMES = ("localhost", "kubernetes", "kubernetes.default")


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """PEM files of one certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """``server`` is for servers on loopback, ``client`` for whoever calls a node agent; both signed by ``ca_file``."""

    ca_file: Path
    server: KeyPair
    client: KeyPair


def issue(directory: Path) -> Certificates:
    """The certificates in the directory; made anew as a set where one is missing or broken or ends within 30 days.

    Key files are readable by their owner only. Raises SandboxError where the directory can't be written.
    """
    certificates = Certificates(
        ca_file=directory / "ca.crt", server=_pair(directory, "server"), client=_pair(directory, "client")
    )
    if not _usable(certificates):
        try:
            directory.mkdir(parents=True, exist_ok=True, mode=0o700)
            _make_all(directory, certificates)
        except OSError as problem:
            raise SandboxError(f"{directory}: cannot write the certificates: {problem}") from problem
    return certificates


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """An opened certificate authority that signs further certificates."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def sign(self, directory: Path, name: str, *, organization: str | None = None, server: bool = False) -> KeyPair:
        """A new pair ``name.crt``/``name.key`` whose common name is ``name``; servers answer for loopback."""
        pair = _pair(directory, name.replace(":", "-"))
        key = ec.generate_private_key(ec.SECP256R1())
        purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = _builder(_name(name, organization), self.certificate.subject, key)
        if server:
            purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
            alternatives: list[x509.GeneralName] = [x509.IPAddress(ipaddress.ip_address(a)) for a in _ADDRESSES]
            alternatives += [x509.DNSName(host) for host in _NAMES]
            builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        builder = (
            builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.certificate.public_key()),  # type: ignore[arg-type]
                critical=False,
            )
        )
        _write(pair, builder.sign(self.key, hashes.SHA256()), key)
        return pair


def open_authority(directory: Path) -> Authority:
    """The authority that ``issue`` made in the directory."""
    key = serialization.load_pem_private_key((directory / "ca.key").read_bytes(), password=None)
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise SandboxError(f"{directory / 'ca.key'}: expected an elliptic-curve key, got {type(key).__name__}")
    return Authority(certificate=x509.load_pem_x509_certificate((directory / "ca.crt").read_bytes()), key=key)


def _make_all(directory: Path, certificates: Certificates) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name("spillway-sandbox-ca", None)
    ca = (
        _builder(subject, subject, key)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(_CA_USAGE, critical=True)
        .sign(key, hashes.SHA256())
    )
    authority = Authority(certificate=ca, key=key)
    authority.sign(directory, "server", server=True)
    authority.sign(directory, "client", organization="system:masters")
    # The authority comes last: a run that dies before has no ca.crt and is repeated as a whole.
    _write(KeyPair(certificate=certificates.ca_file, key=directory / "ca.key"), ca, key)


_CA_USAGE = x509.KeyUsage(
    digital_signature=True,
    key_cert_sign=True,
    crl_sign=True,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    encipher_only=False,
    decipher_only=False,
)


def _usable(certificates: Certificates) -> bool:
    """Whether all of them are there, whole, fit each other and last a while."""
    try:
        authority = x509.load_pem_x509_certificate(certificates.ca_file.read_bytes())
        ends = [authority.not_valid_after_utc]
        for pair in (certificates.server, certificates.client):
            ssl.create_default_context().load_cert_chain(pair.certificate, pair.key)
            issued = x509.load_pem_x509_certificate(pair.certificate.read_bytes())
            issued.verify_directly_issued_by(authority)
            ends.append(issued.not_valid_after_utc)
    except (OSError, ValueError, InvalidSignature):  # missing, cut off by a full disk, or of different sets
        return False
    return min(ends) > datetime.now(UTC) + _RENEW_BEFORE


def _pair(directory: Path, name: str) -> KeyPair:
    return KeyPair(certificate=directory / f"{name}.crt", key=directory / f"{name}.key")


def _name(common: str, organization: str | None) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common)]
    if organization:
        parts.insert(0, x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(minutes=5))
        .not_valid_after(now + _LIFETIME)
    )


def _write(pair: KeyPair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    secret = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    pair.key.unlink(missing_ok=True)
    pair.key.touch(mode=0o600, exist_ok=False)
    pair.key.write_bytes(secret)
    pair.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
