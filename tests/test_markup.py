"""HTML to text in C: what is seen, what is hidden, in a time that only the number of bytes decides; any bytes, within its buffers."""
import os

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sluice import markup
from sluice.kernels import ffi, lib


def page(html):
    """(text, hidden, links) of HTML."""
    text, links, counts = markup.read(html)
    return text, counts.n_hidden, links


SEEN = [
    ("plain", "plain"),
    ("<p>Hi <b>there</b><br>x<br><br>y</p>\n<p>z", "Hi there\nx\n\ny\n\nz"),
    ("a  \n b<td>c<div>d</div>e", "a b c\nd\ne"),
    ("<ul><li>a<li>b<ul><li>c</ul></ul>e", "a\nb\n\nc\n\ne"),
    ("<pre>a\n  b</pre>c\nd", "a\nb\n\nc d"),
    ("a<!-- <b>x</b> -->b<!-->c<!--->d<!--e--!>f<!doctype html>g<?php x ?>h</ i>j<![if mso]>k", "abcdfghjk"),
    ("<script>if (a<b) '</p>'</script>a<style>p{}</style>b<title>t</title>c<SCRIPT>x</Script >d", "abcd"),
    ("a < b, 1<2, <3 and <", "a < b, 1<2, <3 and <"),
    ("<a title='>' href=x>a</a><img alt=x src='y'>b", "ab"),
    ("&lt;b&gt;bold&lt;/b&gt; &amp;amp; &#65;&#x42;&#0000000067; &euro;", "<b>bold</b> &amp; ABC \u20ac"),
    ("&#99999999999999999999; &#xD800; &#8364 &bogus; &", "\ufffd \ufffd \u20ac &bogus; &"),
    ("head</body></html>tail", "head\ntail"),
]


@pytest.mark.parametrize("html, text", SEEN, ids=range(len(SEEN)))
def test_markup_text(html, text):
    assert page(html)[:2] == (text, 0)


HIDDEN = [  # HTML in which "gone" is hidden, and "seen" is not
    "<div style='display:none'>gone</div>seen",
    "<div STYLE=' Display : NONE !important '>gone</div>seen",
    "<div style='color:red; d&#105;splay&colon;none'>gone</div>seen",
    r"<div style='d\69 splay:no\6e e'>gone</div>seen",
    "<div style='display:/* x */none'>gone</div>seen",
    "<span style='dis/**/play:none'>seen</span><i hidden>gone</i>",
    "<p style='display:none'>gone<p>seen",
    "<table><tr><td style='display:none'>gone<td>seen<tr style='display:none'><td>gone<tr><td>seen</table>",
    "<tbody style='display:none'><tr><td>gone<tr><td>gone</tbody><tr><td>seen",
    "<ul><li style='display:none'>gone<li>seen</ul>",
    "<b><div style='display:none'></b>gone</div>seen",
    "<div style='display:none'><b>gone</div>seen",
    "<p><font style='display:none'>gone</p>gone</font>seen",
    "<div style='display:none'><div style='display:block;visibility:visible;font-size:20px'>gone</div>gone</div>seen",
    "<div style='display:none'></span></table></p>gone</div>seen",
    "<div style='visibility:hidden'>gone<i style='visibility:visible'>seen</i></div>",
    "<td style='font-size:0px'>gone<div style='font-size:13px'>seen</div><div style='font-size:1em'>gone</div></td>",
    "<i style='font-size:0'>gone</i><i style='font-size:.5px'>gone</i><i style='font-size:1pt'>gone</i><i style='font-size:8px'>seen</i>",
    "<i style='font-size:0.01em'>gone</i><i style='font-size:90%'>seen</i><i style='font-size:small'>seen</i>",
    "<i style='opacity:0'>gone</i><i style='opacity:.5'>seen</i>",
    "<div style='max-height:0;overflow:hidden'>gone</div><div style='height:0'>seen</div>",
    "<font color=white>gone</font> <font color='#FFFFFF'>gone</font> <font color=#fefefe>gone</font> <font color=#eee>seen</font>",
    "<p style='color: rgb(255, 255,255)'>gone<p style='color:rgb(100% 100% 100%)'>gone<p style='color:rgba(0,0,0,0)'>gone<p>seen",
    "<p style='color:transparent'>gone<p style='color:#fff0'>gone",
    "<table bgcolor=black><tr><td><font color=white>seen</font>gone</table>seen",
    "<body bgcolor=#000000 text=#ffffff>seen<font color=black>gone</font>",
    "<div style='background:#123456 no-repeat'><i style='color:#123456'>gone</i><i style='color:white'>seen</i></div>",
    "<td background=dark.gif><font color=white>seen</font></td>",
    "<div style='background-image:url(x;y)'><font color=white>seen</font></div>",
    "<body bgcolor=white text=white><a href=x>seen</a><a style='color:white' href=x>gone</a>gone</body>",
    "<style>body { background : #000 }</style><font color=white>seen</font>",
    "<style>p { color: red }</style><font color=white>gone</font>seen",
    "<div style='" + "x:y;" * 1000 + "display:none'>gone</div>seen",
    "<template>gone<b>gone</b></template>seen",
    "<div style='text-indent:-9999px'>gone</div><p style='text-indent:-20px'>seen",
]


@pytest.mark.parametrize("html", HIDDEN, ids=range(len(HIDDEN)))
def test_markup_hidden_is_dropped_and_counted(html):
    text, n_hidden, _ = page(html)
    assert "gone" not in text and text.count("seen") == html.count("seen")
    assert n_hidden == 4 * html.count("gone")


def test_markup_hidden_counts_characters():
    assert page("<i hidden>\u00e4\u20ac \U0001f600</i>")[1] == 3


def test_markup_links():
    html = "<a HREF='http://u:p@Example.ORG:80/x'>a</a><form action=//b.example/y></form><a href=mailto:x@y>m</a>" \
           "<a href='htt&#112;://c.example?q'>c</a><base href=http://no.example><a href='http:/\\d.example'>d</a><a href=/local>e</a>"
    assert markup.hosts(page(html)[2]) == ["example.org", "b.example", "c.example", "d.example"]
    assert markup.hosts_in_text("see http://A.example/x, https://b.example. or ftp://c.example") == ["a.example", "b.example"]


def test_markup_links_are_capped():
    links = page("<a href=http://a.example/%s>x</a>" % ("y" * 100) * 1000)[2]
    assert 100 < len(links) < 1000 and len(set(links)) == 1


HOSTILE = [b"<a ", b"<div>", b"<b id=1>", b"<", b"</", b"<!--", b"<!", b"<script>", b"<style>background", b"<td>", b"<b><div></b>", b"&#", b"<p style='",
           b"<p style='a:(;", b"<a href=\"", b"<table><tr><td>", b"<li><ul>", b"<pre>\n", b"\xff\xfe", b"<a b=c d=e ", b"<font color=", b"<p style=\\"]


@pytest.mark.parametrize("unit", HOSTILE, ids=lambda u: u.decode("latin-1").strip())
def test_markup_of_10_mb_ends(unit):
    """60 KB of `<a ` kept Python's parser busy for 26 s; 1 MB of <div> one that builds a tree for more than 20 s."""
    html = (unit * (10_000_000 // len(unit))).decode("latin-1")
    text, links, counts = markup.read(html)
    assert len(text) <= len(html) and len(links) < markup.MAX_LINK_BYTES and 0 <= counts.n_cut <= 2 * len(html)


def test_markup_says_what_it_cannot_follow():
    assert markup.read("seen<a href='x")[2].n_cut == 10
    assert markup.read("seen<script>x")[2].n_cut == 9
    counts = markup.read("<div>" * 200 + "seen")
    assert counts[0] == "seen" and counts[2].n_too_deep == 200 - 96


def raw(html):
    """html_text on exact buffers with a guard of bytes behind them."""
    text, link = ffi.new("uint8_t[]", b"\xa5" * (len(html) + 16)), ffi.new("uint8_t[]", b"\xa5" * (100 + 16))
    source = ffi.new("uint8_t[]", len(html) or 1)  # of exactly its size, so that ASan sees a read behind it
    ffi.memmove(source, html, len(html))
    counts = ffi.new("html_page *")
    lib.html_text(counts, text, link, source, len(html), 100)
    assert 0 <= counts.n_text <= len(html) and 0 <= counts.n_link <= 100
    assert bytes(ffi.buffer(text))[len(html):][:16] == b"\xa5" * 16 and bytes(ffi.buffer(link))[100:116] == b"\xa5" * 16
    return bytes(ffi.buffer(text, counts.n_text))


PIECES = ["<p>", "</p>", "<b>", "</b>", "<div style='display:none'>", "</div>", "<td>", "<tr>", "<table>", "</table>", "<!--", "-->", "<script>", "</script>",
          "<style>", "</style>", "<a href=", "'", '"', ">", "<", "/", "&", "&#x", ";", "&colon;", "style=", "color:", "rgb(", "url(", ")", "\\", "/*", "*/", "#fff",
          "<font color=", "<pre>", "<li>", "<ul>", "hidden", "background", "font-size:0", "\n", " ", "x", "\u00e4", "\0", "=", "-", "!"]


@settings(max_examples=600, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=60).map("".join).map(str.encode) | st.binary(max_size=200))
@example(b"<")
@example(b"<font\0xyz>")
@example(b"<p style\0xyz=x>")
@example(b"<!--")
@example(b"<a/")
@example(b"</script")
@example(b"<p style='\\")
@example(b"&#x")
@example(b"<p style=/*")
def test_markup_stays_within_its_buffers(html):
    first = raw(html)
    assert raw(html) == first


@settings(max_examples=200, deadline=None)
@given(st.text(st.characters(exclude_characters="<&", exclude_categories=("Cs",)), max_size=200))
def test_markup_text_without_tags_keeps_its_words(text):
    assert markup.read(text)[0].split() == "".join(" " if c in " \t\n\v\f\r" else c for c in text).split()


def test_markup_random_bytes():
    for n in (1, 10, 1000, 100000):
        raw(os.urandom(n))
