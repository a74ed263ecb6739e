package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// redissonDir is the Maven program, from the root of the repository.
var redissonDir = filepath.Join("loadtest", "redisson")

const buildTimeout = 10 * time.Minute // the first time it downloads Redisson

// buildRedisson builds the Java client and returns the command that runs it.
func buildRedisson(ctx context.Context, out *progress) ([]string, error) {
	const needs = "redisson needs a JDK (17 or newer) and Maven: run `apt-get install default-jdk-headless maven`"
	for _, tool := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(tool); err != nil {
			return nil, fmt.Errorf("%s: %w", needs, err)
		}
	}
	dir, err := findUp(redissonDir)
	if err != nil {
		return nil, err
	}
	out.say("building the Redisson client with mvn")
	ctx, cancel := context.WithTimeout(ctx, buildTimeout)
	defer cancel()
	mvn := exec.CommandContext(ctx, "mvn", "-q", "-B", "package")
	mvn.Dir = dir
	if text, err := mvn.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("mvn package in %s: %w\n%s", dir, err, text[max(0, len(text)-2000):])
	}
	return []string{"java", "-jar", filepath.Join(dir, "target", "client.jar")}, nil
}

// findUp looks for a folder in the working directory and those above it.
func findUp(name string) (string, error) {
	at, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		dir := filepath.Join(at, name)
		if _, err := os.Stat(filepath.Join(dir, "pom.xml")); err == nil {
			return dir, nil
		}
		up := filepath.Dir(at)
		if up == at {
			return "", errors.New("the Redisson client is built from source: run this within lockdog's repository, where " + name + " is")
		}
		at = up
	}
}
