# The example service of ../compose.yaml. Its context is the root of the repository.
FROM golang:1.26-alpine AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY . .
RUN CGO_ENABLED=0 go build -trimpath -ldflags='-s -w' -o /orders ./examples/orders

FROM scratch
COPY --from=build /orders /orders
USER 65534:65534
EXPOSE 8080
ENTRYPOINT ["/orders"]
