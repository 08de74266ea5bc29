#!/usr/bin/env perl
# Perl's LWP: one agent for all steps. It takes the first scheme that is offered, which is Digest; Basic
# it has to be told to send.

use strict;
use warnings;
use LWP::UserAgent;

$| = 1;

sub next_line {
    my $line = <STDIN> // return;
    chomp $line;
    return $line;
}

sub log_in {
    my ($base, $scheme, $name, $password) = @_;
    # No proxy of whoever runs the tests, since env_proxy is not asked for. Names are UTF-8, as they came.
    my $agent = LWP::UserAgent->new(keep_alive => 1, timeout => 60, ssl_opts => { SSL_ca_file => $ENV{CLIENT_CA} });
    # In docs/reference/clients.md:
    if ($scheme eq 'basic') {
        $agent->default_headers->authorization_basic($name, $password);
    } else {
        $agent->credentials($base =~ s{^https?://}{}r, 'store', $name, $password);
    }
    # Not in it:
    return sub {
        my ($method, $url, $body) = @_;
        my $request = HTTP::Request->new($method, $url);
        if (length $body) {
            $request->content_type('application/json');
            $request->content($body);
        }
        return $agent->request($request);
    };
}

my ($base, $send);
while (defined(my $line = next_line())) {
    if ($line eq 'VERSION') {
        print "$LWP::UserAgent::VERSION\n";
    } elsif ($line eq 'LOGIN') {
        my @login = map { next_line() } 1 .. 4;
        ($base, $send) = ($login[0], log_in(@login));
    } else {
        my ($method, $path, $body) = split / /, $line, 3;
        my $answer = $send->($method, $base . $path, $body);
        # What went wrong before an answer came, it calls an answer of its own.
        my $is_own = ($answer->header('Client-Warning') // '') eq 'Internal response';
        my $text = $answer->content =~ s/\n/ /gr;
        print $is_own ? 0 : $answer->code, " $text\n";
    }
}
