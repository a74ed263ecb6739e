package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

const buildTimeout = 10 * time.Minute // the first build downloads Redisson

// buildRedisson builds the Java client and returns the command that runs it.
func (b *bench) buildRedisson(ctx context.Context) ([]string, error) {
	const needs = "redisson needs a JDK (17 or newer) and Maven: run `apt-get install default-jdk-headless maven`"
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s: %w", needs, err)
		}
	}
	module, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}",
		"github.com/lockdog/lockdog/loadtest").Output()
	if err != nil {
		return nil, fmt.Errorf("the Redisson client is built from source: run this within lockdog's repository: %w",
			err)
	}
	dir := filepath.Join(strings.TrimSpace(string(module)), "redisson")
	b.say("building the Redisson client with mvn")
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "package")
	mvn.Dir = dir
	if text, err := mvn.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mvn package in %s: %w\n%s", dir, err, text[max(0, len(text)-2000):])
	}
	return []string{"java", "-jar", filepath.Join(dir, "target", "client.jar")}, nil
}
